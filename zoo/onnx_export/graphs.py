"""One graph: traced into a file, and verified against torch in onnxruntime."""

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim

from zoo.layers.kernels import plain

if TYPE_CHECKING:
    from onnx_ir import Value

OPSET = 18
TOLERANCE = 1e-4  # between torch and onnxruntime, for an example batch

Tensors = dict[str, Tensor]
Axes = dict[str, tuple[str | None, ...]]  # input -> name of each axis; None: fixed size


class Graph(nn.Module):
    """A function of a model and of named tensors, as a module."""

    def __init__(self, model: Any, compute: Callable[..., tuple[Tensor, ...]]):
        super().__init__()
        self.model, self.compute = model, compute

    def forward(self, inputs: Tensors) -> tuple[Tensor, ...]:
        return self.compute(self.model, **inputs)


def no_form(model: Any, reason: str) -> ValueError:
    return ValueError(f"{type(model).__name__} has no ONNX form: {reason}")


def write_graph(path: Path, module: nn.Module, inputs: Tensors, axes: Axes, outputs: list[str]) -> dict[str, Any]:
    """Traces `module(inputs)`, which returns a tuple, into an ONNX file.

    Args:
        inputs: an example, whose named axes have any size from 2 up.
        axes: for each input.
        outputs: names of the module's outputs.

    Returns:
        dtype and shape of each used input and of each output.
    """
    dims = {name: Dim(name) for row in axes.values() for name in row if name}
    dynamic = {name: {n: dims[axis] for n, axis in enumerate(axes[name]) if axis} for name in inputs}
    with plain(), warnings.catch_warnings():
        # internals of torch; a name may stand for several axes
        warnings.filterwarnings("ignore", message=r"(?s).*(LeafSpec|axis name|_check_is_size|_flat_weights)")
        try:
            exported = torch.onnx.export(
                module.eval(),
                (),
                kwargs={"inputs": inputs},
                dynamic_shapes={"inputs": dynamic},
                input_names=[*inputs],
                output_names=outputs,
                dynamo=True,
                opset_version=OPSET,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            raise no_form(
                module.model, f"torch cannot trace it ({str(error.__cause__).strip().splitlines()[0]})"
            ) from error
    program = cast(torch.onnx.ONNXProgram, exported)  # None without dynamo
    graph = program.model.graph
    for value in [value for value in graph.inputs if not value.uses()]:
        graph.inputs.remove(value)
    for part in (program.model, graph, *graph, *graph.inputs, *graph.outputs, *graph.initializers.values()):
        part.metadata_props.clear()  # they contain the paths of the traced files
    program.save(path)
    return {
        kind: {value.name: _type_and_shape(value) for value in values}
        for kind, values in (("inputs", graph.inputs), ("outputs", graph.outputs))
    }


def _type_and_shape(value: "Value") -> str:
    assert value.dtype is not None and value.shape is not None, "a traced graph has both"
    return f"{value.dtype.numpy()} ({', '.join(map(str, value.shape))})"


def meaning(graph: dict[str, Any], **texts: str) -> dict[str, str]:
    """The descriptions of the inputs and outputs that a graph has."""
    return {name: text for name, text in texts.items() if name in graph["inputs"] or name in graph["outputs"]}


def check_graph(path: Path, inputs: Tensors, expected: tuple[Tensor, ...]) -> None:
    """Raises ValueError unless onnxruntime reproduces torch's first outputs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    found = map(np.asarray, session.run(None, {name: inputs[name].numpy() for name in names}))
    for value, got, want in zip(session.get_outputs(), found, expected):
        same = got.shape == want.shape
        difference = np.abs(got.astype(np.float64) - want.double().numpy()).max(initial=0) if same else math.inf
        if not difference <= TOLERANCE:  # nor NaN
            raise ValueError(
                f"{path.name}: {value.name} differs from torch by {difference:.1e}; at most {TOLERANCE:.0e} is allowed"
            )
