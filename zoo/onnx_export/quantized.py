"""`zoo export --format onnx --int8`: the weights of a graph in 8 bits, about a quarter of the size.

Four forms, chosen by what reads a weight:

* Products (MatMul) are computed in integers. Each row of the activations is quantised by its own largest value, so the
  answer for a text does not depend on the others of its batch. The weights have one scale per column and all 8 bits.
  Processors without VNNI add two such products in 16 bits, which saturates, unless a session has the option
  EXACT_PRODUCTS of zoo/runtime/graphs.py: with it every processor has the same sums, exactly. Weights of 7 bits would
  need no option, but move a translator's predictions 2.3 to 2.8 times as far (divergence from float32 on validation
  sentences).
* Rows of an embedding are looked up in 8 bits and then multiplied by their scale.
* An LSTM whose graph is only given one input at a time (`alone`) is computed in integers by onnxruntime's
  DynamicQuantizeLSTM. It quantises the activations of all rows together, so in a batch the answer for a text would
  depend on the others. A sentence takes two thirds of the time that it takes in float32.
* All others (other recurrences, convolutions, Gemm, Einsum) are converted to float32 once, when the graph is loaded.
  Large recurrences have coarser steps, which take less space in a compressed file: their activations are not rounded,
  so predictions move less for each byte saved than with coarser embeddings or products.

A matrix that is both embedding and output layer is stored once, and what several graphs have in a file of its own.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

SHARED = "shared.bin"  # weights of several graphs or products, and their scales
ALIGNED = 16  # bytes: each begins at a multiple
SMALLEST = 1024  # elements of the smallest weight that is quantised
LARGEST = 127  # absolute value of a weight, or of an activation, which is stored as 128 + value
LARGE, COARSE = 2**18, 47  # elements of a large recurrence, and the absolute value of a weight of it
CONTRIB = "com.microsoft"  # onnxruntime's own operators, on every processor and in the browser
LSTM = "DynamicQuantizeLSTM"  # an LSTM in integers
TINY = 1e-12  # the scale of a row of zeros
KEPT_AXES = {"LSTM": (0, 1), "GRU": (0, 1)}  # axes of a stored weight with own scales: directions and gates; else (0,)


def quantize_graphs(paths: Sequence[Path], alone: Collection[str] = ()) -> list[str]:
    """Replaces the large weights of the graphs of a folder by 8-bit ones, and what reads them.

    A weight that several graphs or products have goes into SHARED, which must lie next to them.

    Args:
        paths: of the graphs.
        alone: names of files of graphs that can be given one input at a time.

    Returns:
        The names of those that must be.
    """
    import onnx

    models = [onnx.load(path) for path in paths]
    for path, model in zip(paths, models, strict=True):
        _Quantizer(model.graph, path.name in alone).run()
    share = _shared([model.graph for model in models])
    if share:
        paths[0].with_name(SHARED).write_bytes(share)
    for path, model in zip(paths, models, strict=True):
        model.opset_import.append(onnx.helper.make_opsetid(CONTRIB, 1))
        onnx.save(model, path)
    return [
        path.name
        for path, model in zip(paths, models, strict=True)
        if any(node.op_type == LSTM for node in model.graph.node)
    ]


def _shared(graphs: Iterable["GraphProto"]) -> bytes:
    """Content of the file of the weights that are there several times; the graphs then refer to it."""
    from onnx import TensorProto

    found: dict[bytes, list[TensorProto]] = {}
    for graph in graphs:
        for tensor in graph.initializer:
            if tensor.data_type in (TensorProto.INT8, TensorProto.FLOAT) and len(tensor.raw_data) >= SMALLEST:
                found.setdefault(tensor.raw_data, []).append(tensor)
    offset, parts = 0, []
    for data, tensors in found.items():
        if len(tensors) > 1:
            for tensor in tensors:
                _refer(tensor, offset)
            parts.append(data + bytes(-len(data) % ALIGNED))
            offset += len(parts[-1])
    return b"".join(parts)


def _refer(tensor: "TensorProto", offset: int) -> None:
    """Lets a tensor refer to a part of SHARED."""
    place = {"location": SHARED, "offset": offset, "length": len(tensor.raw_data)}
    tensor.ClearField("raw_data")
    tensor.data_location = tensor.EXTERNAL
    for key, value in place.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)


class _Quantizer:
    """Rewrites one graph.

    Args:
        graph: has no subgraphs.
        alone: it is given one input at a time.
    """

    def __init__(self, graph: "GraphProto", alone: bool) -> None:
        from onnx import TensorProto, numpy_helper

        self.graph, self.alone = graph, alone
        self.nodes: list[NodeProto] = []  # of the new graph
        self.constants: dict[str, np.ndarray] = {}  # new initializers
        biases = {node.input[3] for node in graph.node if node.op_type in KEPT_AXES}  # of recurrences: (directions, N)
        self.weights = {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in graph.initializer
            if tensor.data_type == TensorProto.FLOAT
            and len(tensor.dims) > 1
            and math.prod(tensor.dims) >= SMALLEST
            and tensor.name not in biases
        }
        # name of a transposed weight -> its own name
        self.transposed = {
            node.output[0]: node.input[0]
            for node in graph.node
            if node.op_type == "Transpose" and node.input[0] in self.weights
        }
        self.products: Counter[str] = Counter()  # of each weight
        self.made: set[str] = set()  # outputs of nodes that several others share

    def run(self) -> None:
        from onnx import numpy_helper

        for node in self.graph.node:
            if self._is_product(node):
                self._product(node)
            elif node.op_type == "Gather" and node.input[0] in self.weights:
                self._rows(node)
            elif self.alone and node.op_type == "LSTM" and {*node.input[1:3]} <= self.weights.keys():
                self._lstm(node)
            elif node.output[0] not in self.transposed:
                self._others(node)
        kept = [tensor for tensor in self.graph.initializer if tensor.name not in self.weights]
        kept += [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        _replace(self.graph.initializer, kept)
        _replace(self.graph.node, self.nodes)
        self._drop_unused()

    def _is_product(self, node: "NodeProto") -> bool:
        if node.op_type != "MatMul":
            return False
        weight = self.weights.get(self.transposed.get(node.input[1], node.input[1]))
        return weight is not None and weight.ndim == 2

    def _product(self, node: "NodeProto") -> None:
        """x W -> (quantised rows of x) (quantised W) * scales of the columns * scales of the rows."""
        name = self.transposed.get(node.input[1], node.input[1])
        quantised, scale = self._quantised(name, axis=0 if name != node.input[1] else 1)
        quantised = self._own(quantised)
        if name != node.input[1]:
            quantised = self._once(f"{quantised}_transposed", "Transpose", [quantised], perm=[1, 0])
        rows, largest = self._quantised_rows(node.input[0])
        one_dimension = self._once(f"{scale}_flat", "Reshape", [scale, self._constant("flat", np.array([-1]))])
        inputs = [rows, quantised, self._row_scale(), one_dimension, self._row_zero()]  # the weight's zero is 0
        product = self._once(f"{node.output[0]}_of_rows", "MatMulIntegerToFloat", inputs, domain=CONTRIB)
        self._add("Mul", [product, largest], node.output[0])

    def _own(self, quantised: str) -> str:
        """The name under which another product reads a weight.

        onnxruntime fails where it would convert a weight twice (see EXACT_PRODUCTS). SHARED has all copies once.
        """
        self.products[quantised] += 1
        if self.products[quantised] == 1:
            return quantised
        copy = f"{quantised}_{self.products[quantised]}"
        self.constants[copy] = self.constants[quantised]
        return copy

    def _quantised_rows(self, x: str) -> tuple[str, str]:
        """8-bit activations, and the largest value of each row."""
        size = self._once(f"{x}_absolute", "Abs", [x])
        largest = self._once(f"{x}_largest", "ReduceMax", [size, self._constant("last_axis", np.array([-1]))])
        largest = self._once(f"{x}_range", "Add", [largest, self._constant("tiny", np.array(TINY, np.float32))])
        share = self._once(f"{x}_share", "Div", [x, largest])
        rows = self._once(f"{x}_uint8", "QuantizeLinear", [share, self._row_scale(), self._row_zero()])
        return rows, largest

    def _row_scale(self) -> str:
        return self._constant("row_scale", np.array(1 / LARGEST, np.float32))

    def _row_zero(self) -> str:
        return self._constant("row_zero", np.array(128, np.uint8))

    def _rows(self, node: "NodeProto") -> None:
        """Rows of an embedding and their scales."""
        quantised, scale = self._quantised(node.input[0], axis=0)
        found = [f"{node.output[0]}_row_{part}" for part in ("int8", "scale", "float")]
        self._add("Gather", [quantised, node.input[1]], found[0])
        self._add("Gather", [scale, node.input[1]], found[1])
        self._add("Cast", [found[0]], found[2], to=1)
        self._add("Mul", [found[2], found[1]], node.output[0])

    def _lstm(self, node: "NodeProto") -> None:
        """An LSTM in integers: with weights (directions, inputs, gates), and scales (directions, gates)."""
        given = [*node.input, *[""] * (8 - len(node.input))]
        more = []
        for n in (1, 2):
            quantised, scale = (self.constants.pop(name) for name in self._quantised(given[n], KEPT_AXES["LSTM"]))
            given[n] = f"{given[n]}_of_lstm"
            zeros = np.zeros(scale.shape[:2], np.int8)
            parts = {"": quantised.transpose(0, 2, 1).copy(), "_scale": scale[:, :, 0], "_zero": zeros}
            self.constants |= {f"{given[n]}{end}": part for end, part in parts.items()}
            more += [f"{given[n]}_scale", f"{given[n]}_zero"]
        self._add(LSTM, [*given, *more], *node.output, domain=CONTRIB)
        self.nodes[-1].attribute.extend(node.attribute)

    def _others(self, node: "NodeProto") -> None:
        """A node that reads float32 weights: onnxruntime computes them when it loads the graph.

        Not by DequantizeLinear, which it would compute at every run.
        """
        for n, name in enumerate(node.input):
            source = self.transposed.get(name, name)
            if source not in self.weights:
                continue
            is_large = node.op_type in KEPT_AXES and self.weights[source].size >= LARGE
            largest, dtype = (COARSE, np.float16) if is_large else (LARGEST, np.float32)
            quantised, scale = self._quantised(source, KEPT_AXES.get(node.op_type, 0), largest, dtype)
            plain = self._once(f"{source}_unscaled", "Cast", [quantised], to=1)
            scale = self._once(f"{scale}_float", "Cast", [scale], to=1) if is_large else scale
            plain = self._once(f"{source}_float", "Mul", [plain, scale])
            node.input[n] = plain if source == name else self._once(f"{name}_float", "Transpose", [plain], perm=[1, 0])
        self.nodes.append(node)

    def _quantised(
        self, name: str, axis: int | tuple[int, ...], largest: int = LARGEST, dtype: type = np.float32
    ) -> tuple[str, str]:
        """Initializers of a weight: int8, and its scales, which have size 1 on all axes but the given ones.

        Args:
            name: of the weight.
            axis: one or several with own scales.
            largest: absolute value of a stored weight.
            dtype: of the scales.
        """
        if f"{name}_int8" not in self.constants:
            weight, kept = self.weights[name], {axis} if isinstance(axis, int) else {*axis}
            others = tuple(n for n in range(weight.ndim) if n not in kept)
            most = np.abs(weight).max(axis=others, keepdims=True)
            scale = np.where(most > 0, most / largest, 1).astype(dtype)
            self.constants[f"{name}_int8"] = np.rint(weight / scale).clip(-largest, largest).astype(np.int8)
            self.constants[f"{name}_scale"] = scale
        return f"{name}_int8", f"{name}_scale"

    def _constant(self, name: str, value: np.ndarray) -> str:
        self.constants[f"int8_{name}"] = value
        return f"int8_{name}"

    def _once(self, output: str, operator: str, inputs: list[str], **attributes: Any) -> str:
        """A node that may exist already."""
        if output not in self.made:
            self.made.add(output)
            self._add(operator, inputs, output, **attributes)
        return output

    def _add(self, operator: str, inputs: list[str], *outputs: str, **attributes: Any) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, outputs, **attributes))

    def _drop_unused(self) -> None:
        """Descriptions of values that no longer exist."""
        exist = {name for node in self.graph.node for name in node.output}
        _replace(self.graph.value_info, [value for value in self.graph.value_info if value.name in exist])


def _replace(field: Any, values: Iterable[Any]) -> None:
    values = list(values)
    del field[:]
    field.extend(values)
