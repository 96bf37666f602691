"""The mean of the weights of several models."""

import fakes
import pytest
import torch

import zoo
from zoo import registry
from zoo.cli import main
from zoo.commands import export
from zoo.commands.average import FREE, average
from zoo.models.luong import LuongNMT
from zoo.text import Tokenizer


def _translator(seed, texts=("two dogs run",), **changed):
    torch.manual_seed(seed)
    model = LuongNMT(
        **LuongNMT.tiny
        | {"src_vocab_size": 40, "tgt_vocab_size": 40, "shared_vocab": True, "tie_output": True}
        | changed
    )
    model.src_tokenizer = model.tgt_tokenizer = Tokenizer.train(list(texts), "char", 40)
    return model


def test_every_weight_is_the_mean_also_the_tied_ones():
    models = [_translator(seed) for seed in range(3)]
    before = [{key: tensor.clone() for key, tensor in model.state_dict().items()} for model in models]
    mean = average(models, ["a", "b", "c"])
    tied = {}
    for key, tensor in mean.state_dict().items():
        torch.testing.assert_close(tensor, torch.stack([state[key] for state in before]).mean(0))
        tied.setdefault(tensor.data_ptr(), []).append(key)
    assert any(len(keys) > 1 for keys in tied.values())
    for model, state in zip(models[1:], before[1:]):
        assert all(torch.equal(tensor, state[key]) for key, tensor in model.state_dict().items())


def test_of_one_it_is_the_model_itself():
    """Its confidence was measured of these very bits, also of negative zeros."""
    model = _translator(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.view(-1)[0] = -0.0
    model.explains = "yes"
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    assert average([model], ["a"]) is model and model.explains == "yes"
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[key]) and torch.equal(tensor.signbit(), before[key].signbit())


@pytest.mark.parametrize(
    "other, says",
    [
        (lambda: fakes.Toy(), "models must be of one class; a is a LuongNMT, b a Toy"),
        (lambda: _translator(1, hidden_size=6), "models must have the same sizes; a and b differ in "),
        (
            lambda: _translator(1, ["one cat sits"]),
            "models must have the same vocabulary and labels; those of a and b differ",
        ),
        (
            lambda: _translator(1, score="dot"),
            "models must have the same sizes; a and b differ in attention.score.w_a.weight",
        ),
        (
            lambda: _translator(1, attention="local_m"),
            "models must compute in the same way; a and b differ in attention",
        ),
    ],
)
def test_models_that_have_no_mean(other, says):
    with pytest.raises(ValueError, match=says):
        average([_translator(0), other()], ["a", "b"])


def test_settings_of_the_training_and_the_search_may_differ():
    first, second = _translator(0), _translator(1, dropout=0.2, label_smoothing=0.2, beam_size=3)
    before = {key: tensor.clone() for key, tensor in second.state_dict().items()}
    average([first, second], ["a", "b"])
    assert all(torch.equal(tensor, before[key]) for key, tensor in second.state_dict().items())


def test_there_are_such_settings():
    assert {key for name in registry.list_models() for key in registry.open_bundle(name).init_args} >= FREE


def test_at_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    models = [_translator(seed) for seed in range(2)]
    for n, model in enumerate(models):
        model.save_pretrained(tmp_path / str(n))
    assert main(["export", "local-dir:0", "local-dir:1", "mean"]) == 0
    assert "model.safetensors" in capsys.readouterr().out
    mean = zoo.load("local-dir:mean").state_dict()
    for key, tensor in mean.items():
        want = sum(model.state_dict()[key] for model in models) / 2
        torch.testing.assert_close(tensor, want, atol=1e-3, rtol=1e-3)  # fp16
    assert main(["export", "local-dir:0", "local-dir:2", "other"]) == 2
    assert not (tmp_path / "other").exists()


def test_an_export_for_another_engine_says_that_it_is_an_average(toy_registry, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(export, "_export_for", lambda engine, model, folder, source, int8: said.append(source))
    for models in (["toy.v2"], ["toy.v2", "toy.v2"]):
        assert main(["export", *models, str(tmp_path / "graphs"), "--format", "onnx"]) == 0
    assert said == ["toy.v2", "the average of toy.v2, toy.v2"]
