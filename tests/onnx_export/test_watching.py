"""Exports give out the scores before the softmax, and p_t of local-p: weights are made of them."""

import numpy as np
import pytest
import torch
from exported import loud
from model_cases import build

from zoo.models.bahdanau import BahdanauNMT
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.onnx_export import export_onnx
from zoo.runtime.graphs import Exported

pytestmark = pytest.mark.integration

CASES = {  # an own model, or the fixture of a shared one
    "additive": (BahdanauNMT, {}),
    "location": (LuongNMT, {"score": "location"}),
    "sparsemax": (LuongNMT, {"score": "dot", "normalize": "sparsemax"}),
    "local_m": "translator",
    "local_p": "predictive_translator",
    "captions": (ShowAttendTell, {"temperature": 2.0}),
    "heads": "transformer",
}


def softmax(scores):
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def first_step(model, folder):
    """Outputs of the first step for one input of full length."""
    exported = Exported(folder)
    batch = model.example_batch(2)
    longest = (
        {}
        if isinstance(model, ShowAttendTell)
        else {"tokens": batch.src[:1], "lengths": torch.tensor([batch.src.size(1)])}
    )
    inputs = longest or {"images": batch.images[:1]}
    memory = exported.graph("encoder.onnx")({name: x.numpy() for name, x in inputs.items()})
    step = exported.graph("step.onnx")
    values = {"tokens": np.array([[2]]), "position": np.array(1), **memory}
    if "given_attention" in step.inputs:
        regions = next(x for name, x in memory.items() if name.startswith("memory_keys")).shape[-2]
        values["given_attention"] = np.zeros((1, 1, regions), np.float32)
    return step(values)


@pytest.mark.parametrize("case", CASES)
def test_weights_are_made_of_the_scores(case, tmp_path, request):
    if isinstance(CASES[case], str):
        model, folder = request.getfixturevalue(CASES[case])
    else:
        cls, options = CASES[case]
        model = loud(build(cls, **options))
        folder = export_onnx(model, tmp_path / "graphs", "tiny")
    window = model.config.get("window")
    found = first_step(model, folder)
    weights = found.get("heads", found["attention"])[0, 0]
    scores = found.get("head_scores" if case == "heads" else "scores")[0, 0]
    positions = np.arange(weights.shape[-1])
    if case == "sparsemax":
        kept = weights > 0
        threshold = scores[kept] - weights[kept]
        assert np.ptp(threshold) < 1e-5 and (scores[~kept] <= threshold.max() + 1e-5).all()
        return
    if case == "captions":
        scores = 2 * scores
    if case == "local_m":
        scores = np.where(abs(positions - 1) <= window, scores, -np.inf)  # the step is that of position 1
    if case == "local_p":
        centre = found["aligned_position"][0, 0]
        assert 0 < centre < len(positions)
        scores = np.where(abs(positions - np.floor(centre)) <= window, scores, -np.inf)
    expected = softmax(scores)
    if case == "local_p":
        expected *= np.exp(-((positions - centre) ** 2) / (2 * (window / 2) ** 2))
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    assert np.ptp(weights) > 1e-3


def test_without_attention_there_is_nothing_to_give_out(plain_translator):
    exported = Exported(plain_translator[1])
    outputs = exported.about["graphs"]["step.onnx"]["outputs"]
    assert not outputs.keys() & {"attention", "scores", "head_scores", "aligned_position"}
