"""`zoo export --format onnx`: a model as ONNX graphs, to be run without torch and without this package.

A translator or a captioner becomes an encoder and one step of its decoder; the loop around them is the user's, and
examples/onnx_translate.py is one. A classifier becomes one graph. Batch, length and number of hypotheses are free. `onnx.json` says
what goes in and what comes out, which tokens are special, how this package would search, and the sha256 of every other file.

What is traced is the models' own code, but for two things:

* Encoders, which run without pads here (zoo/layers/packed.py), become ONNX's LSTM and GRU. Those take the lengths of the rows: pads
  change nothing, and the backward direction begins where a row ends. Classifiers, whose words lie flat, are read padded instead.
* Functions with a hand-written gradient become what they compute.

Shapes: B batch, S length, K hypotheses, N sentences of a document, W words of a sentence, H hidden size of both directions.
"""

import copy
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from zoo import __version__
from zoo.captioning import MAX_WORDS, CaptioningModule
from zoo.extras import require
from zoo.hub import file_hashes
from zoo.labeled_text import DocumentBatch, TextBatch
from zoo.layers import elementwise, recurrent, scores
from zoo.layers.attention import AttentionMemory, LocalPredictiveStarAttention
from zoo.layers.masking import lengths_to_mask, masked_softmax
from zoo.layers.packed import to_padded
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.han import HAN, ContextAttention
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.module import ZooModule, put_in_place
from zoo.text import BOS, EOS, PAD, UNK
from zoo.translation import TranslationModule

MANIFEST = "onnx.json"
OPSET = 18
TOLERANCE = 1e-4  # between torch and onnxruntime, for an example batch
LAST = 2**30  # a position behind every text

Tensors = dict[str, Tensor]
Axes = dict[str, tuple[str | None, ...]]  # input -> name of each axis, None: of fixed size


def export_onnx(model: ZooModule, folder: str | os.PathLike, source: str) -> Path:
    """Writes the graphs of a model, what is saved beside its weights (tokenizer, labels), and onnx.json.

    Args:
        model: a translator, a captioner or a classifier.
        folder: where to: new, empty, or an earlier export, which is then replaced.
        source: where the model comes from; noted in onnx.json.

    Raises:
        ValueError: a package is missing, the model has no ONNX form, `folder` holds something else, or onnxruntime gives other numbers
            than torch.
    """
    require("onnx", "export to ONNX")
    folder = Path(folder).absolute()
    if folder.exists() and not _may_be_replaced(folder):
        raise ValueError(f"{folder} exists and is no ONNX export; give a new or an empty folder")
    model = copy.deepcopy(model).cpu().eval()
    write = _writer(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        new.chmod(0o755)  # mkdtemp makes a private folder
        with torch.no_grad():
            manifest = write(model, _traceable(model), new)
        for name, text in model.assets().items():
            (new / name).write_bytes(text.encode())
        about = {"source": source, "class": type(model).__name__, "attention_zoo": __version__, "opset": OPSET}
        text = json.dumps({**about, **manifest, "sha256": file_hashes(new)}, indent=2, ensure_ascii=False, allow_nan=False)
        (new / MANIFEST).write_bytes(f"{text}\n".encode())
        put_in_place(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def _may_be_replaced(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    names = [file.name for file in folder.iterdir()]
    return not names or (MANIFEST in names and all(name.endswith((".json", ".onnx")) for name in names))


def _writer(model: ZooModule) -> Callable[[Any, Any, Path], dict[str, Any]]:
    """What writes the graphs of a model and gives what onnx.json says of them."""
    if isinstance(model, (TranslationModule, CaptioningModule)):
        return _write_search
    if type(model) in READERS:
        return _write_classifier
    raise _no_form(model, f"translators, captioners, {', '.join(cls.__name__ for cls in READERS)} have one")


def _no_form(model: Any, reason: str) -> ValueError:
    return ValueError(f"{type(model).__name__} has no ONNX form: {reason}")


# ---- what is traced instead of the package's own ----


class _Recurrence(nn.Module):
    """`forward` of a RecurrentEncoder by ONNX's LSTM or GRU. A row of length 0 ends in zeros too, but its memory is anything finite:
    onnxruntime is given one step of it, as of rows without any it may leave the memory as it found it."""

    def __init__(self, encoder: recurrent.RecurrentEncoder):
        super().__init__()
        first = encoder.layers[0][0]
        self.gru, self.size, self.directions = isinstance(first, recurrent.GRUCell), first.hidden_size, len(encoder.layers[0])
        order = [1, 0, 2] if self.gru else [0, 3, 1, 2]  # ONNX has z, r, n and i, o, f, g

        def gates(x: Tensor) -> Tensor:
            return x.unflatten(0, (len(order), self.size))[order].flatten(0, 1)

        self.weights = nn.ParameterList()  # of each layer: input, hidden, bias, all (directions, ...)
        for layer in encoder.layers:
            self.weights.append(torch.stack([gates(cell.weight_input) for cell in layer]))
            self.weights.append(torch.stack([gates(cell.weight_hidden) for cell in layer]))
            self.weights.append(torch.stack([torch.cat([gates(cell.bias), torch.zeros_like(cell.bias)]) for cell in layer]))
        self.requires_grad_(False)

    def forward(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        x, finals, real = inputs, [], lengths.unsqueeze(1) > 0
        state = (self.directions, x.size(0), self.size)
        shapes = [(x.size(1), *state), *[state] * (1 if self.gru else 2)]
        attributes = {"direction": "bidirectional" if self.directions == 2 else "forward", "hidden_size": self.size}
        kind = "GRU" if self.gru else "LSTM"
        if self.gru:
            attributes["linear_before_reset"] = 1
        for n in range(0, len(self.weights), 3):
            given = [x.transpose(0, 1), *(self.weights[n + i] for i in range(3)), lengths.clamp(min=1).int()]
            outputs, *final = torch.onnx.ops.symbolic_multi_out(
                kind, given, attributes, dtypes=[torch.float32] * len(shapes), shapes=shapes, version=14
            )
            x = outputs.permute(2, 0, 1, 3).flatten(2)  # from (S, directions, B, H of one)
            finals.append(tuple(y.transpose(0, 1).flatten(1) * real for y in final))
        return x, finals


class _LocationScore(scores.LocationScore):
    """Without a question about the length, which the trace would answer once and for all."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        length, known = keys.size(1), self.w_a(query)
        return nn.functional.pad(known, (0, length), value=torch.finfo(known.dtype).min)[..., :length]


class _LocalPredictiveStarAttention(LocalPredictiveStarAttention):
    """The D best of S positions and D more that are never chosen: D is then a fixed number, however short the text."""

    def project(self, memory: Tensor, mask: Tensor) -> AttentionMemory:
        gate = torch.sigmoid(self.v_p(torch.tanh(self.w_p(memory))).squeeze(-1)) * mask
        best = nn.functional.pad(gate, (0, self.window), value=-1.0).topk(self.window, dim=-1).indices
        chosen = (best.unsqueeze(-1) == torch.arange(gate.size(1))).any(1)
        return super(LocalPredictiveStarAttention, self).project(memory, mask & chosen)._replace(gate=gate)


_TRACEABLE = {scores.LocationScore: _LocationScore, LocalPredictiveStarAttention: _LocalPredictiveStarAttention}


def _traceable(model: ZooModule) -> Any:
    """A copy of a model whose parts have an ONNX form."""
    model = copy.deepcopy(model).requires_grad_(False)
    for name, module in [*model.named_modules()]:
        if isinstance(module, recurrent.RecurrentEncoder):
            model.set_submodule(name, _Recurrence(module))
        module.__class__ = _TRACEABLE.get(type(module), type(module))
    return model


def _lstm(gates: Tensor, hidden_gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = (gates + hidden_gates).chunk(4, -1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def _gru(gates: Tensor, hidden_gates: Tensor, hidden: Tensor) -> Tensor:
    (r, z, n), (hidden_r, hidden_z, hidden_n) = gates.chunk(3, -1), hidden_gates.chunk(3, -1)
    return torch.lerp(torch.tanh(n + torch.sigmoid(r + hidden_r) * hidden_n), hidden, torch.sigmoid(z + hidden_z))


def _additive(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    return torch.matmul(torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1)), v)


@contextmanager
def _plain_functions() -> Iterator[None]:
    """Lets functions with a hand-written gradient compute what they compute by torch's own operations."""
    plain = {elementwise._Tanh: torch.tanh, scores._AdditiveScore: _additive, recurrent._LSTMCell: _lstm, recurrent._GRUCell: _gru}
    for function, instead in plain.items():
        function.apply = staticmethod(instead)
    try:
        yield
    finally:
        for function in plain:
            del function.apply


# ---- tracing and checking ----


def _write_graph(path: Path, module: nn.Module, inputs: Tensors, axes: Axes, outputs: list[str]) -> dict[str, Any]:
    """Traces `module(inputs)`, which gives a tuple, into an ONNX file.

    Args:
        inputs: an example, in which axes of different names have any sizes from 2 up.
        axes: for each input.
        outputs: names of what the module gives.

    Returns:
        type and shape of each input that matters and of each output.
    """
    dims = {name: Dim(name) for row in axes.values() for name in row if name}
    dynamic = {name: {n: dims[axis] for n, axis in enumerate(axes[name]) if axis} for name in inputs}
    with _plain_functions(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(LeafSpec|axis name)")  # torch's own affairs; a name may stand for several axes
        try:
            program = torch.onnx.export(
                module.eval(), (), kwargs={"inputs": inputs}, dynamic_shapes={"inputs": dynamic}, input_names=[*inputs], output_names=outputs,
                dynamo=True, opset_version=OPSET, verbose=False,
            )  # fmt: skip
        except torch.onnx.OnnxExporterError as error:
            raise _no_form(module.model, f"torch cannot trace it ({str(error.__cause__).strip().splitlines()[0]})") from error
    graph = program.model.graph
    for value in [value for value in graph.inputs if not value.uses()]:
        graph.inputs.remove(value)
    for part in (program.model, graph, *graph, *graph.inputs, *graph.outputs, *graph.initializers.values()):
        part.metadata_props.clear()  # they name the files that were traced, with their folders
    program.save(path)
    return {
        kind: {value.name: f"{value.dtype.numpy()} ({', '.join(map(str, value.shape))})" for value in values}
        for kind, values in (("inputs", graph.inputs), ("outputs", graph.outputs))
    }


def _check(path: Path, inputs: Tensors, expected: tuple[Tensor, ...]) -> None:
    """Raises ValueError unless onnxruntime gives what torch gave for the first outputs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    found = session.run(None, {name: inputs[name].numpy() for name in names})
    for value, got, want in zip(session.get_outputs(), found, expected):
        difference = (torch.from_numpy(got).double() - want.double()).abs().max().item()
        if not difference <= TOLERANCE:  # nor NaN
            raise ValueError(f"{path.name}: {value.name} differs from torch by {difference:.1e}; at most {TOLERANCE:.0e} is allowed")


# ---- translators and captioners ----


class _Encoder(nn.Module):
    """What `encode` is given -> parts of the memory, and the state of one hypothesis (B, 1, H)."""

    def __init__(self, model: Any, parts: list[str]):
        super().__init__()
        self.model, self.parts = model, parts

    def forward(self, inputs: Tensors) -> tuple[Tensor, ...]:
        memory, state = self.model.encode(*inputs.values())
        memory = _named(memory)
        return *(memory[part] for part in self.parts), *(x.unsqueeze(1) for x in state)


class _Step(nn.Module):
    """tokens (B, K), position (), memory, state -> log-probabilities (B, K, V), state, weights (B, K, S) if there is attention.

    Args:
        model: translator or captioner.
        memory: the class of its memory.
        parts: which input each part of the memory is.
    """

    def __init__(self, model: Any, memory: type, parts: list[str]):
        super().__init__()
        self.model, self.memory, self.parts = model, memory, parts

    def forward(self, inputs: Tensors) -> tuple[Tensor, ...]:
        memory = self.memory(*(inputs[part] for part in self.parts))
        state = tuple(x for name, x in inputs.items() if name.startswith("state_"))
        logits, state, weights = self.model.stepper()(inputs["tokens"], state, memory, inputs["position"])
        if isinstance(self.model, TranslationModule):
            logits = self.model.embeddings.logits(logits)
        return logits.float().log_softmax(-1), *state, *(() if weights is None else (weights,))


def _named(memory: Any) -> Tensors:
    """The parts of a memory by name; a tensor that is two parts goes by the name of the first."""
    names: dict[int, str] = {}
    return {names.setdefault(id(x), f"memory_{field}"): x for field, x in memory._asdict().items()}


def _write_search(model: Any, traced: Any, folder: Path) -> dict[str, Any]:
    """encoder.onnx and step.onnx."""
    if model.config.get("decoding") == "sample":
        raise _no_form(model, "decoding 'sample' draws where it looks; load it with decoding 'expectation' or 'argmax'")

    def example(size: int, hypotheses: int) -> tuple[Tensors, Tensors, Any]:
        """Inputs of the encoder and of a step, and the memory."""
        batch = model.example_batch(size)
        inputs = {"images": batch.images} if isinstance(model, CaptioningModule) else {"tokens": batch.src, "lengths": batch.src_lengths}
        memory, state = model.encode(*inputs.values())
        if not all(isinstance(x, Tensor) for x in (*memory, *state)):
            raise _no_form(model, "its memory or its state is no plain list of tensors")
        tokens = (torch.arange(size * hypotheses) % 3 + BOS).view(size, hypotheses)
        states = {f"state_{n}": x.unsqueeze(1).repeat(1, hypotheses, 1) for n, x in enumerate(state)}
        return inputs, {"tokens": tokens, "position": torch.tensor(1), **_named(memory), **states}, memory

    (inputs, given, memory), (other_inputs, other_given, _) = example(6, 3), example(4, 2)
    first = {id(x): name for name, x in _named(memory).items()}
    kind, parts = type(memory), [first[id(x)] for x in memory]
    states = [name for name in given if name.startswith("state_")]
    expected = _Step(model, kind, parts)(other_given)

    axes = {
        "tokens": ("batch", "beam"),
        "position": (),
        **{part: _memory_axes(given[part], other_given[part]) for part in parts},
        **dict.fromkeys(states, ("batch", "beam")),
    }
    after = [f"next_{name}" for name in states]
    outputs = ["log_probs", *after, "attention"][: len(expected)]
    step = _write_graph(folder / "step.onnx", _Step(traced, kind, parts), given, axes, outputs)
    _check(folder / "step.onnx", other_given, expected)

    kept = [name for name in first.values() if name in step["inputs"]]  # others have no influence
    axes = {"tokens": ("batch", "length"), "lengths": ("batch",), "images": ("batch",)}
    encoder = _write_graph(folder / "encoder.onnx", _Encoder(traced, kept), inputs, axes, [*kept, *states])
    _check(folder / "encoder.onnx", other_inputs, _Encoder(model, kept)(other_inputs))
    graphs = {"encoder.onnx": encoder, "step.onnx": step}
    return {**_search_settings(model), "memory": kept, "state": dict(zip(states, after, strict=True)), "graphs": graphs}


def _memory_axes(x: Tensor, other: Tensor) -> tuple[str | None, ...]:
    """Axes of a part of the memory, from two batches of different sizes."""
    return "batch", *("length" if n != m else None for n, m in zip(x.shape[1:], other.shape[1:], strict=True))


def _search_settings(model: Any) -> dict[str, Any]:
    """How this package searches: for at most source tokens * per_source_token (rounded down) + more tokens, EOS counted in both;
    `max_source_tokens` is without EOS."""
    if isinstance(model, CaptioningModule):
        task, never, limit = "captioning", model.forbidden(), {"per_source_token": 0, "more": MAX_WORDS}
    else:
        size = model.config["tgt_vocab_size"]
        unused = range(len(model.tgt_tokenizer) if model.tgt_tokenizer else size, size)
        task, never, limit = "translation", [PAD, UNK, BOS, *unused], {"per_source_token": 1.5, "more": 10}
    search = {"beam_size": model.config["beam_size"], "length_penalty": model.config["length_penalty"], "never": never, "max_length": limit}
    found = {"task": task, "special_tokens": {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}, "search": search}
    if task == "translation":
        found["search"]["max_source_tokens"] = model.max_source_tokens
    else:
        found["images"] = "RGB; cut as preprocessing.json says under resize, then bicubic to size x size pixels; the graph normalises them"
    return found


# ---- classifiers ----


class _Reader(nn.Module):
    """What one of the functions below computes, as a module."""

    def __init__(self, model: Any, read: Callable[..., tuple[Tensor, ...]]):
        super().__init__()
        self.model, self.read = model, read

    def forward(self, inputs: Tensors) -> tuple[Tensor, ...]:
        return self.read(self.model, **inputs)


def _read_with_query(model: AttentionClassifier, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """tokens (B, S), lengths (B,) -> logits (B, C), weights (B, 1, S)."""
    states, finals = model.encoder(model.embedding(tokens), lengths)
    memory = model.attention.project(states, lengths_to_mask(lengths, tokens.size(1)))
    query = finals[-1][0].unsqueeze(1)
    context, weights = model.attention(query, memory, LAST)
    hidden = torch.tanh(model.w_c(torch.cat([context, query], dim=-1))).squeeze(1)
    return model.classifier(hidden), weights


def _read_hops(model: StructuredSelfAttention, tokens: Tensor, lengths: Tensor, **second: Tensor) -> tuple[Tensor, ...]:
    """tokens (B, S), lengths (B,), and of a pair tokens2, lengths2 -> logits (B, C), weights (B, hops, S) of each text."""
    model.embed_text = partial(_embed_padded, model)
    logits, weights = model.read(TextBatch(tokens, lengths, None, **second))
    return logits, *weights


def _embed_padded(model: StructuredSelfAttention, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    states, _ = model.encoder(model.embedding(tokens), lengths)
    hops = model.attention.w_s2(torch.tanh(model.attention.w_s1(states)))  # (B, S, hops)
    weights = masked_softmax(hops.transpose(1, 2), lengths_to_mask(lengths, tokens.size(1)).unsqueeze(1))
    return torch.bmm(weights, states), weights


def _read_documents(model: HAN, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """tokens (B, N, W), lengths (B, N) -> logits (B, C), weights of words (B, N, W) and of sentences (B, N)."""
    shape, words, sentences = tokens.shape, lengths.flatten(), (lengths > 0).sum(1)
    states, _ = model.word_encoder(model.embedding(tokens.flatten(0, 1)), words)  # (B N, W, H)
    vectors, word_weights = _attend(model.word_attention, states, lengths_to_mask(words, shape[2]))
    states, _ = model.sentence_encoder(vectors.unflatten(0, shape[:2]), sentences)  # (B, N, H)
    documents, weights = _attend(model.sentence_attention, states, lengths_to_mask(sentences, shape[1]))
    return model.classifier(documents), word_weights.unflatten(0, shape[:2]), weights


def _attend(attention: ContextAttention, items: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """items (B, S, H), mask (B, S) -> sums (B, H), weights (B, S)."""
    weights = masked_softmax(torch.matmul(torch.tanh(attention.project(items)), attention.context), mask)
    return torch.matmul(weights.unsqueeze(1), items).squeeze(1), weights


def padded_documents(batch: DocumentBatch) -> Tensors:
    """What the graph of a document classifier takes: tokens (B, N, W), lengths (B, N) words of each sentence, 0 behind the last."""
    real = lengths_to_mask(batch.document_lengths)
    rows = to_padded(batch.words, lengths_to_mask(batch.sentence_lengths))  # (sentences, W)
    return {"tokens": to_padded(rows, real), "lengths": to_padded(batch.sentence_lengths, real)}


def _write_classifier(model: Any, traced: Any, folder: Path) -> dict[str, Any]:
    """classifier.onnx."""

    def example(size: int) -> tuple[Tensors, tuple[Tensor, ...]]:
        batch = model.example_batch(size)
        logits, weights = model.read(batch)
        if isinstance(model, HAN):
            return padded_documents(batch), (logits,)
        return {name: x for name, x in batch._asdict().items() if x is not None and name != "labels"}, (logits, *weights)

    (inputs, _), (others, expected) = example(6), example(4)
    if isinstance(model, HAN):
        read, outputs = _read_documents, ["logits", "word_attention", "sentence_attention"]
        axes = {"tokens": ("batch", "sentences", "words"), "lengths": ("batch", "sentences")}
    else:
        read = _read_hops if isinstance(model, StructuredSelfAttention) else _read_with_query
        outputs = ["logits", "attention", "attention2"][: len(expected)]
        axes = {"tokens": ("batch", "length"), "lengths": ("batch",), "tokens2": ("batch", "length2"), "lengths2": ("batch",)}
    graph = _write_graph(folder / "classifier.onnx", _Reader(traced, read), inputs, axes, outputs)
    _check(folder / "classifier.onnx", others, expected)
    found = {"task": "classification", "special_tokens": {"pad": PAD, "unk": UNK}, "labels": model.label_names}
    return {**found, "multi_label": model.config["multi_label"], "graphs": {"classifier.onnx": graph}}


READERS = {AttentionClassifier: _read_with_query, HAN: _read_documents, StructuredSelfAttention: _read_hops}
