"""How related the texts of a pair are, as a second thing to learn: in the loss, in scores, in answers, and through the
commands.
"""

import json
import math

import forks
import labeled_fakes
import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import yaml
from model_cases import build

import zoo
import zoo.runtime
from zoo.batches.classification import collate_texts
from zoo.cli import main
from zoo.data import SICK
from zoo.metrics.classes import ClassScores, Relatedness
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.text import Tokenizer

LABELS = ["entailment", "neutral", "contradiction"]


def _model(**options):
    torch.manual_seed(0)
    return build(StructuredSelfAttention, **{"pair": True, "relatedness": 0.5, **options})


def _batch(scores=(4.5, math.nan, 1.0)):
    scores = None if scores is None else torch.tensor(scores)
    return collate_texts([[4, 5, 6], [7], [8, 9]], torch.tensor([0, 2, 1]), [[7, 8], [4, 4, 5], [9]], scores)


def _reader():
    model = _model(vocab_size=30).eval()
    model.tokenizer = Tokenizer.train(["a dog barks and two cats sleep all day long ."], "word_punct", 30)
    model.label_names = LABELS
    return model


# ---- loss ----


def test_the_term_is_the_weighted_squared_error_of_the_texts_with_a_score():
    model, batch = _model(), _batch()
    without, count = model.loss(batch._replace(scores=None))
    loss, _ = model.loss(batch)
    hidden, _ = model.hidden(batch)
    want = 0.0
    for n, score in ((0, 4.5), (2, 1.0)):
        found = float((hidden[n] @ model.relatedness.weight[0] + model.relatedness.bias[0]).detach())
        want += 0.5 * (found - (score - 3)) ** 2
    assert count == 3 and float((loss - without).detach()) == pytest.approx(want, rel=1e-5) and want > 0.5


def test_the_gradient_of_the_term():
    """Of the head, by hand: d/db 0.5 sum (w h + b - t)^2 = sum (w h + b - t), and that times h for w; the shared layers
    get the rest.
    """
    model, batch = _model(), _batch()
    model.loss(batch)[0].backward()
    with torch.no_grad():
        hidden, _ = model.hidden(batch)
        error = (model.relatedness(hidden).squeeze(1) - torch.tensor([1.5, 0.0, -2.0]))[[0, 2]]
    torch.testing.assert_close(model.relatedness.bias.grad, error.sum().view(1))
    torch.testing.assert_close(model.relatedness.weight.grad[0], error @ hidden[[0, 2]])
    shared = next(model.encoder.parameters()).grad.clone()
    model.zero_grad()
    model.loss(batch._replace(scores=None))[0].backward()
    assert (shared - next(model.encoder.parameters()).grad).abs().max() > 1e-4
    assert (model.relatedness.weight.grad == 0).all()  # not None, for which several processes would wait


def test_the_gradient_by_finite_differences():
    """Along the gradient of each parameter."""
    model, batch = _model(), _batch()
    model.loss(batch)[0].backward()
    for name, parameter in model.named_parameters():
        size = float(parameter.grad.norm())
        losses = []
        for step in (0.01, -0.02):
            parameter.data += step * parameter.grad / size
            losses.append(float(model.loss(batch)[0].detach()))
        parameter.data += 0.01 * parameter.grad / size
        assert size == pytest.approx((losses[0] - losses[1]) / 0.02, rel=0.02, abs=1e-3), name


def test_a_model_without_the_head_does_not_look_at_scores():
    model = _model(relatedness=0.0)
    assert not hasattr(model, "relatedness") and "relatedness.weight" not in model.state_dict()
    assert torch.equal(model.loss(_batch())[0], model.loss(_batch(None))[0])
    same = _model()  # as the random numbers are drawn in the same order, all else is the same
    assert all(torch.equal(tensor, same.state_dict()[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("options", [{"relatedness": -1.0}, {"pair": False}])
def test_bad_weights(options):
    message = "relatedness must be 0, or above 0 for a model of pairs; got (-1.0 with pair true|0.5 with pair false)"
    with pytest.raises(ValueError, match=message):
        _model(**options)


def test_scores_go_where_the_batch_goes():
    batch = _batch()
    part = batch.select([2, 0])
    assert (
        part.scores.tolist() == [1.0, 4.5]
        and part.labels.tolist() == [1, 0]
        and part.tokens2.tolist() == [[9, 0], [7, 8]]
    )
    assert batch.select(slice(0, 0)).scores.shape == (0,) and _batch(None).select([0]).scores is None
    single = collate_texts([[4], [5, 6]], torch.tensor([0, 1]), scores=torch.tensor([2.0, 3.0])).select([1])
    assert (single.scores.tolist(), single.tokens2) == ([3.0], None)


# ---- scores ----


def test_agreement_equals_its_definition():
    rng = np.random.default_rng(0)
    wanted = rng.uniform(1, 5, 50).astype(np.float32)
    predicted = (wanted + rng.normal(0, 1, 50)).astype(np.float32)
    scores = Relatedness()
    for rows in np.split(np.arange(50), [7, 30]):
        scores.update(torch.from_numpy(predicted[rows]), torch.from_numpy(wanted[rows]))
    scores.update(torch.tensor([9.0]), torch.tensor([math.nan]))
    found = scores.compute()
    assert found["relatedness_pearson"] == pytest.approx(
        np.corrcoef(predicted.astype(float), wanted.astype(float))[0, 1], rel=1e-12
    )
    assert found["relatedness_mse"] == pytest.approx(np.mean((predicted.astype(float) - wanted) ** 2), rel=1e-12)


@pytest.mark.filterwarnings("error")
def test_agreement_of_too_few():
    scores = Relatedness()
    assert scores.compute() == {}
    for n in range(2):
        scores.update(torch.tensor([3.0]), torch.tensor([n + 1.0]))
        found = scores.compute()
        assert math.isnan(found["relatedness_pearson"]) and found["relatedness_mse"] == (4.0 if n == 0 else 2.5)


def _score_shard(rank, shards, store, results):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=len(shards))
    scores = ClassScores(3, related=True)
    for n in shards[rank]:
        scores.update(torch.eye(3)[[n % 3]], torch.tensor([n % 2]))
        scores.relatedness.update(torch.tensor([0.1 * n * n]), torch.tensor([float(n)]))
    results.put(scores.compute())
    dist.destroy_process_group()


@pytest.mark.integration
def test_two_processes_find_what_one_finds(tmp_path):
    one = ClassScores(3, related=True)
    for n in range(5):
        one.update(torch.eye(3)[[n % 3]], torch.tensor([n % 2]))
        one.relatedness.update(torch.tensor([0.1 * n * n]), torch.tensor([float(n)]))
    forks.start()
    results = forks.CONTEXT.SimpleQueue()
    shards = [[3, 4, 0, 2, 1], []]  # the second process has nothing to score
    mp.start_processes(_score_shard, (shards, tmp_path / "store", results), nprocs=2, start_method="forkserver")
    assert [results.get() for _ in shards] == [one.compute()] * 2


# ---- use ----


def test_classify_tells_it_between_1_and_5():
    model = _reader()
    pairs = [("a dog barks", "two cats sleep"), ("a dog", "a dog"), ("", "dog")]
    with torch.no_grad():
        texts = [[model.tokenizer.encode(text) for text in pair] for pair in pairs]
        *_, raw = model.read_related(collate_texts([a for a, _ in texts], texts2=[b for _, b in texts]))
    found = model.classify(pairs)
    assert [result.relatedness for result in found] == pytest.approx(raw.tolist(), abs=1e-5) and len(
        set(raw.tolist())
    ) == 3
    assert found[0].to_dict()["relatedness"] == round(found[0].relatedness, 4)
    for bias, limit in ((50.0, 5.0), (-50.0, 1.0)):
        model.relatedness.bias.data.fill_(bias)
        assert model.classify(pairs[0]).relatedness == limit
    plain = _reader()
    plain.config["relatedness"] = 0.0
    assert plain.classify(pairs[0]).relatedness is None and "relatedness" not in plain.classify(pairs[0]).to_dict()


def test_other_labels_keep_the_head(tmp_path):
    model = _reader()
    head = model.relatedness.weight.detach().clone()
    model.replace_labels(["yes", "no"])
    assert torch.equal(model.relatedness.weight, head) and model.classify(("a dog", "two cats")).relatedness is not None
    folder = model.save_pretrained(tmp_path / "bundle", golden=True)
    again = zoo.load(f"local-dir:{folder}")
    assert torch.equal(again.relatedness.weight, head)
    assert torch.equal(again.golden()["relatedness"], model.eval().golden()["relatedness"])


def test_overrides_give_and_take_the_head(tmp_path, caplog):
    folder = _model(relatedness=0.0).save_pretrained(tmp_path / "plain")
    model = zoo.load(f"local-dir:{folder}", {"relatedness": 0.25})
    assert "re-initialised relatedness" in caplog.text and model.relatedness.weight.shape == (1, 8)
    caplog.clear()
    folder = model.save_pretrained(tmp_path / "related")
    assert zoo.load(f"local-dir:{folder}", {"relatedness": 2.0}).config["relatedness"] == 2.0 and not caplog.text
    assert not hasattr(zoo.load(f"local-dir:{folder}", {"relatedness": 0.0}), "relatedness")


def test_a_bundle_from_before_there_was_such_an_argument(tmp_path):
    model = _model(relatedness=0.0).eval()
    folder = model.save_pretrained(tmp_path / "bundle")
    config = json.loads((folder / "config.json").read_text())
    del config["init_args"]["relatedness"]
    from zoo.utils.strict_json import digest

    config["digest"] = digest({key: value for key, value in config.items() if key != "digest"})
    (folder / "config.json").write_text(json.dumps(config))
    again = zoo.load(f"local-dir:{folder}")
    assert again.config["relatedness"] == 0.0 and torch.equal(again.golden()["logits"], model.golden()["logits"])


@pytest.mark.integration
def test_an_exported_graph_tells_it_too(pair_classifier):
    model, folder = pair_classifier
    pairs = [("A man runs .", "a black dog"), ("People", "eats ice cream"), ("", "dog")]
    wanted = [result.relatedness for result in model.classify(pairs)]
    assert len(set(wanted)) == 3
    found = [result.relatedness for result in zoo.runtime.load(folder).classify(pairs)]
    assert found == pytest.approx(wanted, abs=1e-4)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    labeled_fakes.invent(SICK, {}, tmp_path / "data")
    return tmp_path


@pytest.mark.integration
def test_a_training_through_the_commands(folder, capsys):
    stage = _model(relatedness=0.0, vocab_size=60, num_classes=2, hidden_size=8, mlp_size=16)
    stage.tokenizer, stage.label_names = Tokenizer.train(labeled_fakes.WORDS, "word_punct", 60), ["different", "same"]
    stage.save_pretrained("stage1")
    quiet = {
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
        "max_epochs": 2,
    }
    saving = {"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": {"save_last": True}}
    parts = {
        "trainer": {**quiet, "callbacks": [saving]},
        "model": {
            "class_path": "zoo.load",
            "init_args": {"name": "local-dir:stage1", "overrides": {"relatedness": 0.5}},
        },
        "data": {"class_path": "zoo.data.SICK", "init_args": {"swapped": True, "batch_size": 16}},
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(parts))
    assert main(["fit", "--config", "tiny.yaml"]) == 0
    assert main(["export", "runs/tiny/checkpoints/last.ckpt", "mine"]) == 0
    capsys.readouterr()
    assert main(["test", "--config", "tiny.yaml", "--weights", "local-dir:mine"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    printed = {
        line[0].removeprefix("test/"): float(line[1])
        for line in lines
        if len(line) == 2 and line[0].startswith(("test/accuracy", "test/relatedness"))
    }
    assert list(printed) == ["accuracy", "relatedness_pearson", "relatedness_mse"]
    found, wanted = [], []
    model = zoo.load("local-dir:mine")
    for example in SICK().examples("test"):
        found.append(model.classify((example.text, example.text2)).relatedness)
        wanted.append(example.score)
    assert printed["relatedness_mse"] == pytest.approx(np.mean((np.array(found) - wanted) ** 2), abs=0.006)
    assert printed["relatedness_pearson"] == pytest.approx(np.corrcoef(found, wanted)[0, 1], abs=0.006)
    assert main(["predict", "local-dir:mine", "a dog", "two cats", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["label"] in LABELS and 1 <= answer["relatedness"] <= 5
    assert answer["relatedness"] == pytest.approx(model.classify(("a dog", "two cats")).relatedness, abs=1e-4)
