"""What every model must do, whatever its task: train on its own example batch, save and load itself, and describe
itself.
"""

import copy
import inspect
import json

import lightning.pytorch as pl
import PIL.Image
import pytest
import torch
from model_cases import CASES, CLASSES, WITHOUT_GRAPHS, build
from torch.utils.data import DataLoader

from zoo.models.luong import LuongNMT
from zoo.onnx_export import _writer
from zoo.text import Tokenizer


def train_loss(model, batch):
    """The loss of one batch per item, outside a trainer."""
    loss, items = model.loss(batch)
    return loss / items


def _select(batch, rows):
    """Some of the items of a batch."""
    if hasattr(batch, "select"):
        return batch.select(rows)
    return type(batch)(*(x[rows] if isinstance(x, torch.Tensor) else x for x in batch))


@pytest.mark.parametrize("cls, options", CASES)
def test_every_parameter_gets_a_finite_gradient(cls, options):
    torch.manual_seed(0)
    model = build(cls, **options).train()
    train_loss(model, model.example_batch(6)).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and p.grad.isfinite().all(), name
        assert p.grad.abs().max() > 0, name


def _less_often(case):
    """Trainings of variants are slow tests, but for the kinds of attention."""
    quick = case.values[1].keys() <= {"attention"}
    return pytest.param(*case.values, id=case.id, marks=() if quick else pytest.mark.slow)


@torch.no_grad()
def _evaluated(model, batch):
    """The loss in eval mode; the model is in training mode afterwards."""
    loss = train_loss(model.eval(), batch).item()
    model.train()
    return loss


def _without_answers_in_the_query(batch):
    """Cloze questions without the answers that a model cannot give which never points at a word of the query."""
    queries = batch.query.split(batch.query_lengths.tolist())
    answers = [-1 if answer in query else answer for answer, query in zip(batch.answers.tolist(), map(list, queries))]
    return batch._replace(answers=torch.tensor(answers))


@pytest.mark.parametrize("cls, options", [_less_often(case) for case in CASES])
def test_overfits_one_batch(cls, options):
    torch.manual_seed(1)
    model = build(cls, **options).train()
    batch = model.example_batch(5)
    if options.get("exclude_query_words"):
        batch = _without_answers_in_the_query(batch)
        assert (batch.answers >= 0).any()
    # an image has two captions here, and which of them is meant nobody can learn; hard attention draws where it looks
    steps, rate, limit = (300, 0.01, 0.6) if hasattr(model, "caption") else (150, 0.03, 0.3)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(steps):
        loss = train_loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9 and (found := _evaluated(model, batch)) < limit:
            break
    assert found < limit  # about 2.2 at the start


@pytest.mark.parametrize("cls", CLASSES)
def test_same_seed_same_loss_and_eval_is_deterministic(cls):
    losses = []
    for _ in range(2):
        torch.manual_seed(2)
        model = build(cls, dropout=0.5).train()
        batch = model.example_batch(4)
        losses.append([train_loss(model, batch).item() for _ in range(2)])
    assert losses[0] == losses[1]
    assert losses[0][0] != losses[0][1]  # dropout is at work
    model.eval()
    assert train_loss(model, batch).item() == train_loss(model, batch).item()


@pytest.mark.parametrize("cls, options", CASES)
def test_bundle_round_trip_is_exact(cls, options, tmp_path):
    torch.manual_seed(3)
    model = build(cls, **options).eval()
    folder = model.save_pretrained(tmp_path / "bundle")
    assert {f.name for f in folder.iterdir()} == {"config.json", "model.safetensors", *model.assets()}
    again = cls.from_pretrained(folder)
    expected, found = model.golden(), again.golden()
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    for a, b in zip(model.state_dict().values(), again.state_dict().values()):
        assert torch.equal(a, b)


@pytest.mark.parametrize("cls", CLASSES)
def test_config_is_the_signature_and_json(cls, tmp_path):
    model = build(cls)
    parameters = inspect.signature(cls.__init__).parameters
    assert list(model.config) == list(parameters)[1:]
    assert json.loads(json.dumps(model.config)) == model.config
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
    documented = inspect.getdoc(cls)
    for name in list(parameters)[1:]:
        assert f"    {name}: " in documented, f"{name} is not documented"


@pytest.mark.parametrize("cls", CLASSES)
def test_fast_dev_run_and_checkpoint(cls, tmp_path):
    model = build(cls)
    loader = DataLoader([model.example_batch(4)], batch_size=None)
    checkpoint = tmp_path / "model.ckpt"
    trainer = pl.Trainer(
        fast_dev_run=True, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(model, loader)
    trainer.save_checkpoint(checkpoint)
    again = cls.load_from_checkpoint(checkpoint, weights_only=True)
    assert again.config == model.config
    for a, b in zip(model.state_dict().values(), again.state_dict().values()):
        assert torch.equal(a, b)


@pytest.mark.parametrize("cls", CLASSES)
def test_gradient_is_the_mean_over_all_items_of_an_optimiser_step(cls):
    """Two accumulated batches of different size give the gradient of one large batch."""
    seen = {}

    class Spy(pl.Callback):
        def on_before_zero_grad(self, trainer, module, optimizer):
            if any(p.grad is not None for p in module.parameters()):
                seen.setdefault(trainer.accumulate_grad_batches, [p.grad.clone() for p in module.parameters()])

    torch.manual_seed(4)
    whole = build(cls)
    batch = whole.example_batch(6)
    parts = [_select(batch, rows) for rows in (slice(0, 2), slice(2, 6))]
    state = {k: v.clone() for k, v in whole.state_dict().items()}
    for loader, accumulate in ((DataLoader([batch], batch_size=None), 1), (DataLoader(parts, batch_size=None), 2)):
        model = build(cls, label_smoothing=0.1) if "label_smoothing" in whole.config else build(cls)
        model.load_state_dict(state)
        trainer = pl.Trainer(
            max_epochs=2,
            accumulate_grad_batches=accumulate,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[Spy()],
        )
        trainer.fit(model, loader)
    for a, b in zip(seen[1], seen[2]):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


class _Interrupt(pl.Callback):
    """Ends a training between two accumulated batches."""

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if batch_idx == 1:
            raise KeyError("the disk is full")


class _Gradients(pl.Callback):
    def on_before_zero_grad(self, trainer, module, optimizer):
        self.found = [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def test_a_training_after_one_that_was_interrupted_between_two_steps():
    """The items of the batches before are not counted again."""
    torch.manual_seed(4)
    model, gradients = build(LuongNMT), []
    fresh = copy.deepcopy(model)
    loader = DataLoader([model.example_batch(n) for n in (3, 4)], batch_size=None)

    def fit(model, callback):
        pl.Trainer(
            max_steps=1, accumulate_grad_batches=2, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=[callback],
        ).fit(model, loader)  # fmt: skip

    with pytest.raises(KeyError, match="the disk is full"):
        fit(model, _Interrupt())
    for one in (model, fresh):
        fit(one, spy := _Gradients())
        gradients.append(spy.found)
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


USES = {
    "translate": ("a b",),
    "align": (("a b", "b a"),),
    "complete": ("a",),
    "perplexity": ("a b",),
    "answer": ("a b", "XXXXX b"),
    "caption": (PIL.Image.new("RGB", (8, 8)),),
    "embed": ("a b",),
    "classify": ("a b",),
}


@pytest.mark.parametrize("cls", CLASSES)
def test_half_precision_weights_are_refused_and_double_ones_work(cls):
    model = build(cls, **{name: 12 for name in cls.tiny if name.endswith("vocab_size")}).double().eval()
    for name in ("tokenizer", "src_tokenizer", "tgt_tokenizer"):
        if hasattr(model, name):
            setattr(model, name, Tokenizer.train(["a b"], "word", 12))
    if hasattr(model, "classify"):
        model.label_names = [str(n) for n in range(model.config["num_classes"])]
    uses = {name: given for name, given in USES.items() if hasattr(model, name)}
    assert uses
    for name, given in uses.items():
        if (cls.__name__, name) != ("Seq2SeqNMT", "align"):  # has no attention
            getattr(model, name)(*given)
    model.bfloat16()
    for name, given in uses.items():
        with pytest.raises(
            ValueError,
            match=r"the weights must be float32 or float64; got torch.bfloat16: call float\(\), and for speed",
        ):
            getattr(model, name)(*given)
    next(model.float().parameters()).data = next(model.parameters()).data.half()
    for name, given in uses.items():
        with pytest.raises(ValueError, match=r"must be float32 or float64; got torch.float16 and torch.float32: call"):
            getattr(model, name)(*given)
    for name, given in uses.items():
        with pytest.raises(ValueError, match="the weights are on the device meta, where they have no values"):
            getattr(model.float().to("meta"), name)(*given)


@pytest.mark.parametrize("cls", CLASSES)
def test_every_model_can_be_exported_or_is_known_not_to(cls):
    """A new classifier, language model or reader needs a line in zoo/onnx_export, or in WITHOUT_GRAPHS."""
    if cls.__name__ in WITHOUT_GRAPHS:
        with pytest.raises(ValueError, match=f"{cls.__name__} has no ONNX form"):
            _writer(build(cls))
    else:
        assert callable(_writer(build(cls)))
