"""`zoo export --format onnx --int8`: graphs with weights in 8 bits compute nearly the same, alike on every processor."""

import os
import shutil
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from model_cases import build
from onnx import TensorProto, helper, numpy_helper

from zoo import onnx_export
from zoo.cli import main
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.han import HAN
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.transformer import TransformerNMT
from zoo.onnx_export import export_onnx, quantized
from zoo.onnx_export.quantized import quantize_graphs
from zoo.runtime.graphs import EXACT_PRODUCTS, Graph

OWN = {"Abs", "Add", "Cast", "Div", "Gather", "MatMulIntegerToFloat", "Mul", "QuantizeLinear", "ReduceMax", "Reshape"}
OWN |= {
    "DynamicQuantizeLSTM",
    "Transpose",
}  # what the rewriting may add: all of it is in onnxruntime's builds for processors and for browsers
ROWS, WIDTH, COLUMNS = 50, 64, 80


def written(path, nodes, inputs, outputs, weights):
    """A graph of opset 18 in a file."""
    values = [
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in side.items()]
        for side in (inputs, outputs)
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph([helper.make_node(*node[:3], **node[3]) for node in nodes], "test", *values, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def session(path):
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(*EXACT_PRODUCTS)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(path, **inputs):
    return session(path).run(None, inputs)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product(path, weight, outputs=("y",)):
    nodes = [("MatMul", ["x", "w"], [name], {}) for name in outputs]
    last = {name: (TensorProto.FLOAT, ["batch", weight.shape[1]]) for name in outputs}
    written(path, nodes, {"x": (TensorProto.FLOAT, ["batch", len(weight)])}, last, {"w": weight})
    quantize_graphs([path])
    return path


def tied(path):
    """An embedding that is the output layer too."""
    nodes = [
        ("Gather", ["e", "tokens"], ["x"], {}),
        ("Transpose", ["e"], ["t"], {"perm": [1, 0]}),
        ("MatMul", ["x", "t"], ["y"], {}),
    ]
    outputs = {"x": (TensorProto.FLOAT, ["n", WIDTH]), "y": (TensorProto.FLOAT, ["n", ROWS])}
    return written(path, nodes, {"tokens": (TensorProto.INT64, ["n"])}, outputs, {"e": normal(ROWS, WIDTH)})


def recurrent(path):
    size = 16
    weights = {"w": normal(2, 4 * size, WIDTH) / 8, "r": normal(2, 4 * size, size) / 4, "b": normal(2, 8 * size)}
    node = ("LSTM", ["x", *weights], ["y"], {"direction": "bidirectional", "hidden_size": size})
    inputs = {"x": (TensorProto.FLOAT, ["n", 3, WIDTH])}
    return written(path, [node], inputs, {"y": (TensorProto.FLOAT, ["n", 2, 3, size])}, weights)


def convolution(path):
    nodes = [
        ("Conv", ["x", "w"], ["c"], {"kernel_shape": [3, 3]}),
        ("Flatten", ["c"], ["f"], {}),
        ("Gemm", ["f", "g"], ["z"], {"transB": 1}),
        ("Einsum", ["z", "t"], ["y"], {"equation": "bi,ijk->bjk"}),
    ]
    weights = {"w": normal(32, 8, 3, 3) / 8, "g": normal(COLUMNS, 32) / 6, "t": normal(COLUMNS, 4, 5) / 9}
    inputs = {"x": (TensorProto.FLOAT, ["n", 8, 3, 3])}
    return written(path, nodes, inputs, {"y": (TensorProto.FLOAT, ["n", 4, 5])}, weights)


@pytest.mark.parametrize(
    "make, inputs, most",
    [
        (tied, {"tokens": np.arange(0, ROWS, 3)}, 0.02),
        (recurrent, {"x": normal(7, 3, WIDTH, seed=1)}, 0.01),
        (convolution, {"x": normal(5, 8, 3, 3, seed=1)}, 0.01),
    ],
)
def test_every_form(make, inputs, most, tmp_path):
    """About a quarter of the size, nearly the same numbers, no float32 weight left."""
    plain = make(tmp_path / "plain.onnx")
    small = shutil.copy(plain, tmp_path / "small.onnx")
    quantize_graphs([small])
    assert os.path.getsize(small) < 0.4 * os.path.getsize(plain)
    for found, want in zip(run(small, **inputs), run(plain, **inputs), strict=True):
        assert 0 < np.sqrt(np.square(found - want).mean()) < most * want.std()
    graph = onnx.load(small).graph
    sizes = Counter()
    for tensor in graph.initializer:
        sizes[tensor.data_type] += len(numpy_helper.to_array(tensor).reshape(-1))
    before = sum(numpy_helper.to_array(tensor).size for tensor in onnx.load(plain).graph.initializer)
    assert sizes[TensorProto.INT8] > 0.9 * before and sizes[TensorProto.FLOAT] < 0.1 * before
    assert {node.op_type for node in graph.node} <= OWN | {node.op_type for node in onnx.load(plain).graph.node}


def test_an_lstm_that_reads_one_input_at_a_time(tmp_path):
    """It is computed in integers, nearly as in float32; the biases keep all their digits."""
    plain = recurrent(tmp_path / "plain.onnx")
    small = Path(shutil.copy(plain, tmp_path / "small.onnx"))
    assert quantize_graphs([small], {"other.onnx"}) == []
    shutil.copy(plain, small)
    assert quantize_graphs([small], {small.name}) == [small.name]
    x = normal(7, 3, WIDTH, seed=1)
    ((found,), (want,)) = run(small, x=x), run(plain, x=x)
    assert 0 < np.sqrt(np.square(found - want).mean()) < 0.02 * want.std()
    stored = {x.name: numpy_helper.to_array(x) for x in onnx.load(small).graph.initializer}
    np.testing.assert_array_equal(stored["b"], normal(2, 8 * 16))
    assert {name for name, x in stored.items() if x.dtype == np.float32 and x.ndim > 2} == set()


def test_an_embedding_that_is_the_output_layer_is_stored_once(tmp_path):
    quantize_graphs([tied(tmp_path / "graph.onnx")])
    stored = [x for x in onnx.load(tmp_path / "graph.onnx").graph.initializer if x.data_type == TensorProto.INT8]
    assert [list(tensor.dims) for tensor in stored if len(tensor.dims)] == [[ROWS, WIDTH]]


def test_a_weight_of_two_graphs_is_stored_once(tmp_path):
    both = tied(tmp_path / "both.onnx")
    tokens, one = np.arange(0, ROWS, 3), tmp_path / "one.onnx"
    inputs, outputs = {"tokens": (TensorProto.INT64, ["n"])}, {"x": (TensorProto.FLOAT, ["n", WIDTH])}
    embedding = normal(ROWS, WIDTH)
    written(one, [("Gather", ["other", "tokens"], ["x"], {})], inputs, outputs, {"other": embedding})
    quantize_graphs([both, one])
    assert (tmp_path / quantized.SHARED).stat().st_size == ROWS * WIDTH
    assert max(one.stat().st_size, both.stat().st_size) < ROWS * WIDTH
    (looked_up,), (same, _) = run(one, tokens=tokens), run(both, tokens=tokens)
    np.testing.assert_array_equal(looked_up, same)
    np.testing.assert_allclose(looked_up, embedding[tokens], atol=np.abs(embedding).max() / quantized.LARGEST / 1.9)


def test_scales_of_two_graphs_are_stored_once(tmp_path, monkeypatch):
    monkeypatch.setattr(quantized, "SMALLEST", 4 * ROWS)
    both, one, tokens = tied(tmp_path / "both.onnx"), tied(tmp_path / "one.onnx"), np.arange(0, ROWS, 3)
    quantize_graphs([both, one])
    begin = -(-ROWS * WIDTH // quantized.ALIGNED) * quantized.ALIGNED
    shared = (tmp_path / quantized.SHARED).read_bytes()
    assert begin + 4 * ROWS <= len(shared) < begin + 4 * ROWS + quantized.ALIGNED
    for found, same in zip(run(both, tokens=tokens), run(one, tokens=tokens), strict=True):
        np.testing.assert_array_equal(found, same)


def test_a_large_recurrence_takes_less_space_in_a_compressed_file(tmp_path, monkeypatch):
    x, (wanted,) = normal(7, 3, WIDTH, seed=1), run(recurrent(tmp_path / "plain.onnx"), x=normal(7, 3, WIDTH, seed=1))
    sizes, differences = [], []
    for large in (10**9, 1):
        monkeypatch.setattr(quantized, "LARGE", large)
        quantize_graphs([path := recurrent(tmp_path / f"{large}.onnx")])
        sizes.append(len(zlib.compress(path.read_bytes(), 9)))
        differences.append(np.abs(run(path, x=x)[0] - wanted).max())
    assert sizes[1] < 0.85 * sizes[0]
    assert 0 < differences[0] < differences[1] < 4 * differences[0]  # the steps are 2.7 times as coarse


def test_products_are_exact_sums_of_integers(tmp_path):
    """Also where all of them are as large as they can be, which saturates 16 bits, in the sessions of `zoo.runtime`."""
    weight = normal(WIDTH, COLUMNS)
    weight[:, 0], weight[:, 1] = 3, -2
    x = normal(6, WIDTH, seed=1)
    x[0], x[1], x[2] = 5, -5, 0
    path = product(tmp_path / "graph.onnx", weight)
    (found,) = run(path, x=x)
    np.testing.assert_array_equal(Graph(path, threads=1)({"x": x})["y"], found)
    scale = np.abs(weight).max(0) / quantized.LARGEST
    largest = np.abs(x).max(1, keepdims=True) + np.float32(quantized.TINY)
    rows, columns = np.rint(x / largest * np.float32(quantized.LARGEST)), np.rint(weight / scale)
    assert np.abs(columns).max() == np.abs(rows).max() == quantized.LARGEST
    exact = rows.astype(np.int64) @ columns.astype(np.int64)
    assert exact.max() == WIDTH * quantized.LARGEST**2
    np.testing.assert_allclose(found, exact * (largest / quantized.LARGEST) * scale, rtol=2e-6, atol=1e-30)
    assert not found[2].any()


def test_the_answer_for_a_row_does_not_depend_on_its_batch(tmp_path):
    graph, x = session(product(tmp_path / "graph.onnx", normal(WIDTH, COLUMNS))), normal(9, WIDTH, seed=1)
    x[4] *= 1e4
    (together,) = graph.run(None, {"x": x})
    alone = [graph.run(None, {"x": row[None]})[0][0] for row in x]
    np.testing.assert_array_equal(together, alone)


def test_two_products_of_one_weight(tmp_path):
    """They read the same rows, quantised once, and each its own copy of the weight, which is stored once."""
    weight, x = normal(WIDTH, COLUMNS), normal(6, WIDTH, seed=1)
    path = product(tmp_path / "graph.onnx", weight, ("y", "z"))
    kinds = Counter(node.op_type for node in onnx.load(path).graph.node)
    assert kinds["MatMulIntegerToFloat"] == 2 and kinds["QuantizeLinear"] == kinds["ReduceMax"] == 1
    assert (tmp_path / quantized.SHARED).stat().st_size == weight.size
    (alone,) = run(product(tmp_path / "one.onnx", weight), x=x)
    for found in run(path, x=x):
        np.testing.assert_array_equal(found, alone)


def test_two_products_of_one_transposed_weight(tmp_path):
    nodes = [("Transpose", ["w"], ["t"], {"perm": [1, 0]})]
    nodes += [("MatMul", ["x", "t"], [name], {}) for name in ("y", "z")]
    outputs = {name: (TensorProto.FLOAT, ["n", COLUMNS]) for name in ("y", "z")}
    inputs, weight = {"x": (TensorProto.FLOAT, ["n", WIDTH])}, normal(COLUMNS, WIDTH)
    path = written(tmp_path / "graph.onnx", nodes, inputs, outputs, {"w": weight})
    quantize_graphs([path])
    x = normal(6, WIDTH, seed=1)
    first, second = run(path, x=x)
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - x @ weight.T).max() < 0.02 * np.abs(first).max()


def test_small_weights_and_zeros_stay(tmp_path):
    assert quantized.SMALLEST > 4 * 5
    small, zeros = normal(4, 5), np.zeros((WIDTH, COLUMNS), np.float32)
    (found,) = run(product(tmp_path / "small.onnx", small), x=normal(3, 4))
    np.testing.assert_allclose(found, normal(3, 4) @ small, rtol=1e-5)
    assert not run(product(tmp_path / "zeros.onnx", zeros), x=normal(3, WIDTH))[0].any()


# ---- whole models ----


def test_the_command_line(tmp_path, monkeypatch):
    model = build(KeyValuePredictLM)
    model.save_pretrained(tmp_path / "bundle")
    arguments, seen = ["export", f"local-dir:{tmp_path / 'bundle'}", str(tmp_path / "out"), "--int8"], []
    monkeypatch.setattr(onnx_export, "export_onnx", lambda *given: seen.append(given[1:]) or tmp_path / "bundle")
    assert main([*arguments, "--format", "onnx"]) == 0
    assert seen == [(str(tmp_path / "out"), arguments[1], True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls", [LuongNMT, TransformerNMT, ShowAttendTell, KeyValuePredictLM, AttentionOverAttentionReader, HAN]
)
def test_every_task(cls, tmp_path, monkeypatch):
    """With every weight in 8 bits, however small: the outputs, and only operators that a processor or a browser has."""
    monkeypatch.setattr(quantized, "SMALLEST", 1)
    torch.manual_seed(0)
    model, compared = build(cls).eval(), []
    check = lambda path, inputs, expected: compared.append((path.name, inputs, expected))  # noqa: E731
    for module in ("classifiers", "encoder_decoder", "language_models", "readers"):
        monkeypatch.setattr(f"zoo.onnx_export.{module}.check_graph", check)
    plain = export_onnx(model, tmp_path / "plain", "tiny")
    small = export_onnx(model, tmp_path / "small", "tiny", int8=True)
    assert compared
    for name, inputs, expected in compared:
        graph = session(small / name)
        found = graph.run(None, {value.name: inputs[value.name].numpy() for value in graph.get_inputs()})
        for got, want in zip(found, expected):
            np.testing.assert_allclose(got, want.numpy(), atol=0.05)
        before, after = (onnx.load(x / name).graph for x in (plain, small))
        kinds, own = ({node.op_type for node in graph.node} for graph in (after, before))
        assert kinds <= own | OWN
        biases = {node.input[3] for node in after.node if node.op_type == quantized.LSTM}
        matrices = {x.name for x in after.initializer if x.data_type == TensorProto.FLOAT and len(x.dims) > 1}
        assert matrices & _wide(plain / name) <= biases


def _wide(path):
    """Names of the matrices of a graph; those of biases of recurrences are not among them."""
    graph = onnx.load(path).graph
    biases = {node.input[3] for node in graph.node if node.op_type in quantized.KEPT_AXES}
    return {x.name for x in graph.initializer if x.data_type == TensorProto.FLOAT and len(x.dims) > 1} - biases
