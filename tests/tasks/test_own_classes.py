"""What a model class of a user lacks, or hides, is named when it is built."""

import copy
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, Trainer
from torch import nn
from torch.nn.utils import prune
from torch.utils.data import DataLoader

from zoo.batches.classification import collate_texts
from zoo.comparison.recipes import Recipes
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.luong import LuongNMT
from zoo.tasks.captioning import CaptioningModule
from zoo.tasks.classification import TextClassifier
from zoo.tasks.language_modelling import LanguageModelModule
from zoo.tasks.reading import ReadingModule
from zoo.tasks.translation import TranslationModule


class HalfTranslator(TranslationModule[tuple]):
    def __init__(self, src_vocab_size=9, tgt_vocab_size=9, label_smoothing=0.1, beam_size=5, length_penalty=1.0):
        super().__init__()

    def encode(self, src, src_lengths):
        return (), ()


class EmptyCaptioner(CaptioningModule[tuple]):
    pass


class EmptyClassifier(TextClassifier):
    pass


class EmptyLanguageModel(LanguageModelModule):
    pass


class EmptyReader(ReadingModule):
    pass


@pytest.mark.parametrize(
    ("cls", "missing"),
    [
        (HalfTranslator, "decode, step, which zoo.tasks.translation.TranslationModule leaves to each model; see there"),
        (EmptyCaptioner, "encode, loss, step, which zoo.tasks.captioning.CaptioningModule leaves to"),
        (EmptyClassifier, "read, which zoo.tasks.classification.ClassificationModule leaves to"),
        (EmptyLanguageModel, "start, read, which zoo.tasks.language_modelling.LanguageModelModule leaves to"),
        (EmptyReader, "forward, which zoo.tasks.reading.ReadingModule leaves to"),
    ],
)
def test_a_missing_method_is_named(cls, missing):
    with pytest.raises(ValueError, match=f"^{cls.__name__} must define {missing}"):
        cls()


def test_a_language_model_without_vocab_size():
    class Whole(EmptyLanguageModel):
        def __init__(self):
            super().__init__()

        def start(self, batch_size):
            return ()

        def read(self, inputs, state, lengths=None):
            return inputs, None, state

    with pytest.raises(ValueError, match="Whole.__init__ must take vocab_size, as all models of its task do"):
        Whole()


def test_zoo_compare_asks_for_the_methods_before_it_trains(tmp_path):
    (tmp_path / "base.yaml").write_text("model: {class_path: zoo.models.luong.LuongNMT}\n")
    (tmp_path / "half.yaml").write_text(f"model: {{class_path: {__name__}.HalfTranslator}}\n")
    with pytest.raises(ValueError, match="HalfTranslator must define decode, step"):
        Recipes(tmp_path).check_model("half")


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("translate", "of Translator"),
        ("loss", "of TranslationModule"),
        ("parameters", "of Module"),
        ("_random", "of Z"),
    ],
)
@pytest.mark.parametrize("layer", [nn.Linear(2, 2), nn.Parameter(torch.zeros(2))], ids=["module", "parameter"])
def test_a_layer_with_the_name_of_a_method(name, owner, layer):
    """`self.translate(x)` would call the method, and the layer would never be used."""
    model = LuongNMT(**LuongNMT.tiny)
    message = f"^LuongNMT: a layer cannot be called '{name}', an attribute {owner}.*; give it another name$"
    with pytest.raises(ValueError, match=message):
        setattr(model, name, layer)


@pytest.mark.parametrize("name", ["config", "_device"])
def test_a_layer_in_the_place_of_what_every_model_has(name):
    with pytest.raises(ValueError, match=f"a layer cannot be called '{name}', an attribute that every model has;"):
        setattr(LuongNMT(**LuongNMT.tiny), name, nn.Linear(2, 2))


def test_other_layers_may_be_replaced_and_hidden():
    model = LuongNMT(**LuongNMT.tiny)
    for name in ("_mine", "decoder", "answer", "decoder"):
        setattr(model, name, nn.Linear(2, 2))
        assert getattr(model, name).weight.shape == (2, 2)


def test_a_forward_that_nothing_calls_is_told():
    expected = (
        r"^Mine.forward replaces that of TranslationModule, but training and verbs do not call it: "
        r"they call decode, encode, step; override those, or loss$"
    )
    with pytest.warns(UserWarning, match=expected) as caught:

        class Mine(LuongNMT):
            def forward(self, src, src_lengths, tgt):
                return super().forward(src, src_lengths, tgt)

    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.filterwarnings("error")
def test_a_forward_that_is_called_is_not():
    class WithLoss(LuongNMT):
        def forward(self, *inputs):
            return super().forward(*inputs)

        def loss(self, batch, label_smoothing=0.0):
            return self(batch.src, batch.src_lengths, batch.targets()[0][:, :-1])[0].sum(), 1

    class WithForward(EmptyReader):
        def forward(self, batch):
            return batch, None

    class Other(WithForward):
        def forward(self, batch):
            return super().forward(batch)

    assert WithLoss.forward is not LuongNMT.forward and Other.forward is not WithForward.forward


# ---- what a class says about its arguments ----

TINY = {**AttentionClassifier.tiny, "dropout": 0.0}


class Unannotated(AttentionClassifier):
    def __init__(self, vocab_size, num_classes, multi_label=False, embedding_size=6, word_dropout=0.0,
                 label_smoothing=0.0, hidden_size=8, adversarial=0.0, extra=None):  # fmt: skip
        super().__init__(vocab_size, num_classes, multi_label, embedding_size, hidden_size=hidden_size)


class Typed(AttentionClassifier):
    def __init__(self, vocab_size: "int", num_classes: "int", multi_label: "bool" = False, embedding_size: int = 6,
                 word_dropout: float = 0.0, label_smoothing: float = 0.0, adversarial: float = 0.0,
                 extra: "Sequence[int] | dict[str, float] | None" = None, anything: Any = 3):  # fmt: skip
        super().__init__(vocab_size, num_classes, multi_label, embedding_size, hidden_size=8)


class Bare(AttentionClassifier):
    def __init__(self, vocab_size: int, num_classes: int, multi_label: bool = False, embedding_size: int = 6,
                 word_dropout: float = 0.0, label_smoothing: float = 0.0, adversarial: float = 0.0,
                 extra: tuple = (), more: typing.List = [], most: Mapping = {}, last: Sequence = ()):  # noqa: UP006  # fmt: skip
        super().__init__(vocab_size, num_classes, multi_label, embedding_size, hidden_size=8)


class Unknown(AttentionClassifier):
    def __init__(self, vocab_size: int, num_classes: int, multi_label: bool = False, embedding_size: int = 6,
                 word_dropout: float = 0.0, label_smoothing: float = 0.0, adversarial: float = 0.0,
                 extra: "NotImportedHere" = None):  # noqa: F821  # fmt: skip
        super().__init__(vocab_size, num_classes, multi_label, embedding_size, hidden_size=8)


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (Unannotated, {}),
        (Unannotated, {"extra": ["a", {"b": 1.5}, None, True]}),
        (Typed, {"extra": [1, 2], "anything": {"a": [1]}}),
        (Typed, {"extra": {"a": 0.5}}),
        (Typed, {"label_smoothing": np.float64(0.1)}),
        (Bare, {"extra": [1], "more": ["a"], "most": {"a": [1]}, "last": [2]}),
        (Unknown, {"extra": "text"}),
    ],
)
def test_what_is_saved_loads_whatever_the_annotations(tmp_path, cls, options):
    model = cls(12, 3, **options).eval()
    model.save_pretrained(tmp_path / "own")
    loaded = cls.from_pretrained(tmp_path / "own")
    assert loaded.config == model.config and loaded.config.get("extra") == options.get("extra")
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (Unannotated, {"extra": torch.ones(2)}, "extra must be text, a number, true, false or null, or lists"),
        (Unannotated, {"extra": float("nan")}, "extra must be text, a number"),
        (Typed, {"extra": "a"}, "extra must be a list of a whole number up to .* or a dict from text to a number"),
    ],
)
def test_an_argument_that_no_file_holds_is_told_before_anything_is_replaced(tmp_path, cls, options, message):
    cls(12, 3).save_pretrained(tmp_path / "own")
    before = (tmp_path / "own" / "config.json").read_bytes()
    with pytest.raises(ValueError, match=f"^not saved, as the model could not be loaded again: {message}"):
        cls(12, 3, **options).save_pretrained(tmp_path / "own")
    assert (tmp_path / "own" / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda model: setattr(model, "encoder", torch.compile(model.encoder, backend="eager")),
            r"encoder\._orig_mod.* is not in the model.*; first undo torch.compile \(`_orig_mod` is the part itself\)$",
        ),
        (
            lambda model: nn.utils.parametrizations.weight_norm(model.classifier),
            r"classifier\.parametrizations\..*; first undo the parametrizations \(.*remove_parametrizations\)$",
        ),
        (
            lambda model: prune.l1_unstructured(model.classifier, "weight", 2),
            r"classifier\.weight_mask.*; first undo the pruning \(torch.nn.utils.prune.remove\)$",
        ),
        (lambda model: setattr(model, "classifier", nn.Linear(3, 5)), r"classifier\.bias has shape \(5,\) in the file"),
    ],
)
def test_a_model_that_would_not_load_again_is_not_saved(tmp_path, change, message):
    model = AttentionClassifier(**TINY)
    change(model)
    with pytest.raises(ValueError, match=rf"^not saved, as the model could not be loaded again: .*{message}"):
        model.save_pretrained(tmp_path / "own")
    assert not (tmp_path / "own").exists()


def test_a_required_choice_may_be_copied_and_missed():
    class Choosing(AttentionClassifier):
        def __init__(self, vocab_size: int, num_classes: int, kind: Literal["a", "b"], multi_label: bool = False,
                     embedding_size: int = 6, word_dropout: float = 0.0, label_smoothing: float = 0.0,
                     adversarial: float = 0.0):  # fmt: skip
            super().__init__(vocab_size, num_classes, multi_label, embedding_size, hidden_size=8)

    assert copy.deepcopy(Choosing(12, 3, "a")).config["kind"] == "a"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'kind'"):
        Choosing(12, 3)
    with pytest.raises(ValueError, match="kind must be one of 'a', 'b'; got 'c'"):
        Choosing(12, 3, "c")


def test_arguments_without_names_are_refused():
    class Free(LuongNMT):
        def __init__(self, src_vocab_size=9, **options):
            super().__init__(src_vocab_size, **options)

    with pytest.raises(ValueError, match=r"^Free.__init__ must name its arguments.*; got \*\*options: write out those"):
        Free(9, tgt_vocab_size=9)


# ---- Lightning's hooks ----


def test_a_hook_that_hides_one_of_the_base_is_told():
    with pytest.warns(
        UserWarning, match=r"^Mine.setup hides that of TranslationModule, which training needs: call super\(\)"
    ):

        class Mine(LuongNMT):
            def setup(self, stage):
                self.begun = True


def test_a_mixin_that_hides_a_hook_is_told():
    class Mixin:
        def on_save_checkpoint(self, checkpoint):
            pass

    with pytest.warns(UserWarning, match=r"^Mixin.on_save_checkpoint hides that of ZooModule"):

        class Mine(Mixin, LuongNMT):
            pass


@pytest.mark.filterwarnings("error")
def test_hooks_that_hide_nothing_are_not():
    class Mine(LuongNMT):
        def setup(self, stage):
            super().setup(stage)

        def on_save_checkpoint(self, checkpoint):
            LuongNMT.on_save_checkpoint(self, checkpoint)

        def on_train_epoch_end(self):
            self.ended = True

        def on_fit_start(self):
            def go():
                super(Mine, self).on_fit_start()

            go()

        def on_before_optimizer_step(self, optimizer):
            self.read = True

    assert Mine(**LuongNMT.tiny)


class OneStep(AttentionClassifier):
    """Remembers how long its gradient was when the hooks read it."""

    optimizer = lambda groups: torch.optim.SGD(groups, lr=1.0)  # noqa: E731  # as a user may write it
    lr_scheduler = staticmethod(lambda optimizer: torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0))

    def on_before_optimizer_step(self, optimizer):
        self.length = _length([p.grad for p in self.parameters()])


class Reader(Callback):
    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.length = _length([p.grad for p in pl_module.parameters()])


class ByHand(OneStep):
    automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx))
        self.clip_gradients(optimizer, gradient_clip_val=1e-3, gradient_clip_algorithm="norm")
        optimizer.step()


class ByMethod(OneStep):
    def optimizer(self, groups):
        return torch.optim.SGD(groups, lr=1.0)


def _length(tensors):
    return float(torch.cat([x.flatten() for x in tensors]).norm())


def _step(tmp_path, cls, batches, **options):
    torch.manual_seed(1)
    model, reader = cls(**TINY), Reader()
    before = [p.detach().clone() for p in model.parameters()]
    trainer = Trainer(
        default_root_dir=tmp_path, accelerator="cpu", logger=False, enable_progress_bar=False, max_steps=1,
        enable_model_summary=False, enable_checkpointing=False, callbacks=[reader], **options,
    )  # fmt: skip
    trainer.fit(model, DataLoader([model.example_batch(size) for size in batches], batch_size=None))
    moved = _length([p.detach() - old for p, old in zip(model.parameters(), before, strict=True)])
    return moved, model.length, reader.length


def test_hooks_and_callbacks_read_the_gradient_of_the_step(tmp_path):
    """The mean over the items of all batches of a step, as plain torch has it."""
    torch.manual_seed(1)
    plain = OneStep(**TINY)
    batches = [plain.example_batch(size) for size in (5, 20)]
    losses, counts = zip(*(plain.loss(batch) for batch in batches), strict=True)
    (sum(losses) / sum(counts)).backward()
    expected = pytest.approx(_length([p.grad for p in plain.parameters()]), rel=1e-4)
    for cls in (OneStep, ByMethod):
        assert _step(tmp_path, cls, (5, 20), accumulate_grad_batches=2) == (expected, expected, expected)


def test_a_training_by_hand_clips_the_mean(tmp_path):
    moved, *_ = _step(tmp_path, ByHand, (5,))
    assert moved == pytest.approx(1e-3, rel=1e-3)


def test_a_frozen_part_stays_in_eval_mode_and_a_loaded_model_does_not(tmp_path):
    class WithTeacher(AttentionClassifier):
        def __init__(self, vocab_size: int, num_classes: int, multi_label: bool = False, embedding_size: int = 6,
                     word_dropout: float = 0.0, label_smoothing: float = 0.0, adversarial: float = 0.0):  # fmt: skip
            super().__init__(vocab_size, num_classes, multi_label, embedding_size, hidden_size=8)
            self.teacher = nn.Dropout(0.5).eval()

    fresh, loaded = WithTeacher(12, 3), AttentionClassifier(**TINY).eval()
    loaded.classifier = nn.Linear(loaded.classifier.in_features, loaded.classifier.out_features)  # in training mode
    for model in (fresh, loaded):
        model.setup("fit")
    assert fresh.training and not fresh.teacher.training
    assert all(module.training for module in loaded.modules())


def test_several_validation_sets_are_refused(tmp_path):
    model = AttentionClassifier(**TINY)
    batches = DataLoader([model.example_batch(3)], batch_size=None)
    trainer = Trainer(default_root_dir=tmp_path, accelerator="cpu", logger=False, enable_progress_bar=False,
                      enable_model_summary=False, enable_checkpointing=False, max_steps=1)  # fmt: skip
    with pytest.raises(ValueError, match="validation takes one set, whose scores decide; got 2: give the others to"):
        trainer.fit(model, batches, [batches, batches])


def test_a_negative_id_is_no_word():
    """As of an index it would be the last one."""
    with pytest.raises(RuntimeError, match="index -1 is out of bounds"):
        AttentionClassifier(**TINY).eval()(collate_texts([[3, -1]]))
