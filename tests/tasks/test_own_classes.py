"""What a model class of a user lacks, or hides, is named when it is built."""

import pytest
import torch
from torch import nn

from zoo.comparison.recipes import Recipes
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
