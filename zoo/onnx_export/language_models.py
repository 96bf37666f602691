"""Language models: step.onnx, which reads any number of words of some texts and continues from its last state.

Shapes: B texts, T words, L window, H and O outputs of a layer and of the top one, V vocabulary.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.layers.masking import lengths_to_mask
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.onnx_export.graphs import Graph, Tensors, check_graph, meaning, write_graph
from zoo.onnx_export.watching import SCORES, watching
from zoo.text import BOS, EOS, PAD, UNK


def _read(model: Any, tokens: Tensor, lengths: Tensor, **state: Tensor) -> tuple[Tensor, ...]:
    """Reads words from a state on.

    Args:
        model: a model from `traceable`.
        tokens: (B, T).
        lengths: (B,) number of real words in each row.
        state: hidden and cell state of each layer (B, H); the last outputs `past` (B, L, O) and the number of them
            that exist, `known` (B,).

    Returns:
        log-probabilities (B, T, V) of the next words, 0 after the lengths; the state after the real words; with
        attention the weights (B, T, L) on the words 1, 2, ... L steps back, and their scores.
    """
    layers = tuple(x for name, x in state.items() if name.startswith(("hidden", "cell")))
    x, finals = model.cells(model.words(tokens), lengths, layers)  # (B, T, O)
    after, known = [y for layer in finals for y in layer], state.get("known")
    if "past" in state:
        window = state["past"].size(1)
        x = torch.cat([state["past"], x], dim=1)  # (B, L + T, O)
        last = lengths.unsqueeze(1) + torch.arange(window)
        after.append(x.gather(1, last.unsqueeze(-1).expand(-1, -1, x.size(-1))))
        if known is not None:
            after.append((known + lengths).clamp(max=window))
    with watching(model) as before_weights:
        readouts, weights = model.reader(x.transpose(0, 1), known)
    log_probs, shown = _as_outputs(
        model, readouts.transpose(0, 1), weights if weights is None else weights.transpose(0, 1), lengths
    )
    return log_probs, *after, *shown, *(scores.transpose(0, 1) for scores in before_weights.values())


def _as_outputs(
    model: Any, readouts: Tensor, weights: Tensor | None, lengths: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    real = lengths_to_mask(lengths, readouts.size(1)).unsqueeze(-1)
    log_probs = model.words.logits(readouts).log_softmax(-1) * real
    return log_probs, () if weights is None else (weights * real,)


def _state_names(model: KeyValuePredictLM) -> list[str | None]:
    """Name in the graph of each tensor of the state; None: it has no influence."""
    attends = model.config["attention"] not in ("none", "ngram")
    layers = [f"{part}_{n}" for n in range(len(model.cells)) for part in ("hidden", "cell")]
    return [*layers, "past" if model.reader.length else None, "known" if attends else None]


def write_language_model(model: KeyValuePredictLM, traced: Any, folder: Path) -> dict[str, Any]:
    """step.onnx."""
    names = _state_names(model)

    def named(state: tuple[Tensor, ...]) -> Tensors:
        return {name: x for name, x in zip(names, state, strict=True) if name}

    def example(size: int, steps: int) -> tuple[Tensors, tuple[Tensor, ...]]:
        """Texts in the middle; the first has no further word, the last as many as possible."""
        words = model.example_batch(size).inputs.repeat(1, 2)
        before = torch.arange(size) % 4
        _, _, state = model.read(words[:, :3], model.start(size), before)
        tokens, lengths = words[:, 3 : 3 + steps], torch.arange(size) % (steps + 1)
        readouts, weights, after = model.read(tokens, state, lengths)
        log_probs, shown = _as_outputs(model, readouts, weights, lengths)
        return {"tokens": tokens, "lengths": lengths, **named(state)}, (log_probs, *named(after).values(), *shown)

    (inputs, expected), (others, wanted) = example(6, 5), example(4, 3)
    first = named(model.start(1))
    axes = {
        "tokens": ("batch", "words"),
        **{name: ("batch",) + (None,) * (x.dim() - 1) for name, x in inputs.items() if name != "tokens"},
    }
    after = {name: f"next_{name}" for name in first}
    outputs = ["log_probs", *after.values(), "attention"][: len(expected)]
    outputs += [SCORES] * ("attention" in outputs)
    graph = write_graph(folder / "step.onnx", Graph(traced, _read), inputs, axes, outputs)
    check_graph(folder / "step.onnx", others, wanted)

    size, tokenizer = model.config["vocab_size"], model.tokenizer
    unused = range(len(tokenizer) if tokenizer else size, size)
    return {
        "task": "language modelling",
        "special_tokens": {"pad": PAD, "unk": UNK, "eos": EOS},
        "tokenizer": tokenizer and tokenizer.kind,
        "meaning": meaning(
            graph,
            tokens="words; eos stands at the end of each line and before the first one",
            lengths="number of real words in each row, possibly 0; padding follows them",
            log_probs="of the next word at each position; 0 after the lengths",
            attention="weights on the words 1, 2, ... steps back; 0 where there are none, and after the lengths",
            scores="of these words, before the softmax; anything where there are none",
        ),
        "state": after,
        "first_state": {
            name: {"type": str(x.numpy().dtype), "zeros": ["batch", *x.shape[1:]]} for name, x in first.items()
        },
        "search": {"never": [PAD, UNK, BOS, *unused], "max_words": 20, "min_words": 1, "length_penalty": 1.0},
        "graphs": {"step.onnx": graph},
    }
