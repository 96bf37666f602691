"""Translators and captioners: encoder.onnx, run once per text or image, and step.onnx, one step of a search.

The state of a Transformer grows by one column at each step and is empty at first.

A step with attention takes weights from outside, `given_attention`: rows of zeros are computed by the model, any other
row is used in place of the model's weights.

Shapes: B batch, S length, K hypotheses, V vocabulary.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zoo.onnx_export.graphs import Tensors, check_graph, meaning, no_form, write_graph
from zoo.onnx_export.watching import WATCHED, watching
from zoo.runtime.searching import ENCODER, GIVEN, STEP
from zoo.tasks.captioning import MAX_WORDS, CaptioningModule
from zoo.tasks.given import takes_given
from zoo.tasks.heads import MultiHeadTranslation
from zoo.tasks.translation import TranslationModule
from zoo.text import BOS, EOS, PAD, UNK
from zoo.verbs.translation import MORE, PER_SOURCE_TOKEN


class _Encoder(nn.Module):
    """Inputs of `encode` -> parts of the memory, and the state of one hypothesis (B, 1, ...)."""

    def __init__(self, model: Any, parts: list[str]):
        super().__init__()
        self.model, self.parts = model, parts

    def forward(self, inputs: Tensors) -> tuple[Tensor, ...]:
        memory, state = self.model.encode(*inputs.values())
        memory = _named(memory)
        return *(memory[part] for part in self.parts), *(x.unsqueeze(1) for x in state)


class _Step(nn.Module):
    """tokens (B, K), position (), memory, state, given weights (B, K, S) if any -> log-probabilities (B, K, V), state,
    weights (B, K, S) if any, those of each layer and head (B, K, layers * heads, S) if there are several, and what the
    attention computed before them, see `watching`.

    Args:
        model: translator or captioner.
        memory: one of its memories.
    """

    def __init__(self, model: Any, memory: Any):
        super().__init__()
        self.model, self.kind = model, type(memory)
        names = {id(x): name for name, x in _named(memory).items()}
        # the input that each is
        self.parts = [names[id(x)] if isinstance(x, Tensor) else [names[id(y)] for y in x] for x in memory]

    def outputs(self, inputs: Tensors) -> Tensors:
        """What a step gives, by name."""
        memory = self.kind(*(inputs[x] if isinstance(x, str) else tuple(inputs[y] for y in x) for x in self.parts))
        state = {name: x for name, x in inputs.items() if name.startswith("state_")}
        several = isinstance(self.model, MultiHeadTranslation)
        step = self.model.step_with_heads if several else self.model.step
        given = {"given": inputs[GIVEN]} if GIVEN in inputs else {}
        with watching(self.model) as before_weights:
            logits, after, *weights = step(inputs["tokens"], tuple(state.values()), memory, inputs["position"], **given)
        if isinstance(self.model, TranslationModule):
            logits = self.model.embeddings.logits(logits)
        found = dict(zip(["attention", "heads"], weights))
        return {
            "log_probs": logits.float().log_softmax(-1),
            **{f"next_{name}": x for name, x in zip(state, after, strict=True)},
            **{name: x for name, x in found.items() if x is not None},
            **before_weights,
        }

    def forward(self, inputs: Tensors) -> tuple[Tensor, ...]:
        return tuple(self.outputs(inputs).values())


def _named(memory: Any) -> Tensors:
    """The parts of a memory, tensors or tuples of them, by name; a tensor used twice has the name of the first part."""
    found: dict[int, tuple[str, Tensor]] = {}
    for field, part in memory._asdict().items():
        parts = (
            {f"memory_{field}": part}
            if isinstance(part, Tensor)
            else {f"memory_{field}_{n}": x for n, x in enumerate(part)}
        )
        for name, x in parts.items():
            found.setdefault(id(x), (name, x))
    return dict(found.values())


def write_encoder_decoder(model: Any, traced: Any, folder: Path) -> dict[str, Any]:
    """encoder.onnx and step.onnx."""
    if model.config.get("decoding") == "sample":
        raise no_form(model, "decoding 'sample' is random; load it with decoding 'expectation' or 'argmax'")

    def example(size: int, hypotheses: int, written: int) -> tuple[Tensors, Tensors, Any]:
        """Inputs of the encoder and of a step (of a growing state: after `written` other steps), and the memory."""
        batch = model.example_batch(size)
        inputs = (
            {"images": batch.images}
            if isinstance(model, CaptioningModule)
            else {"tokens": batch.src, "lengths": batch.src_lengths}
        )
        memory, state = model.encode(*inputs.values())
        tokens = (torch.arange(size * hypotheses) % 3 + BOS).view(size, hypotheses)
        state, step = tuple(x.unsqueeze(1).repeat_interleave(hypotheses, 1) for x in state), model.step
        for t in range(written):
            _, after, _ = step(tokens, state, memory, t)
            if [x.shape for x in after] == [x.shape for x in state]:
                break  # the first state suffices
            state = after
        states = {f"state_{n}": x for n, x in enumerate(state)}
        given = {"tokens": tokens, "position": torch.tensor(written), **_named(memory), **states}
        _, _, weights = step(tokens, state, memory, written)
        if weights is not None and takes_given(model.step):
            chosen = (torch.arange(weights.size(0)) % 2).view(-1, 1, 1)  # of every second row
            given[GIVEN] = chosen * torch.linspace(1, 2, weights.size(-1)).softmax(0).expand_as(weights)
        return inputs, given, memory

    inputs, given, memory = example(6, 3, 2)
    # n texts have up to n tokens with EOS, or fewer if the model is limited: of the others the longest must be shorter
    fewer = max(1, min(4, inputs["tokens"].size(1) - 1)) if "tokens" in inputs else 4
    other_inputs, other_given, _ = example(fewer, 2, 5)
    parts, states = list(_named(memory)), [name for name in given if name.startswith("state_")]
    expected = _Step(model, memory).outputs(other_given)

    axes = {
        "tokens": ("batch", "beam"),
        "position": (),
        **{part: _axes(given[part], other_given[part], "batch") for part in parts},
    }
    axes |= {name: _axes(given[name], other_given[name], "batch", "beam", grows="written") for name in states}
    if GIVEN in given:
        axes[GIVEN] = _axes(given[GIVEN], other_given[GIVEN], "batch", "beam")
    after = [f"next_{name}" for name in states]
    step = write_graph(folder / STEP, _Step(traced, memory), given, axes, [*expected])
    # scores may be so large that their rounding is above the limit; weights are made of them
    weighed = tuple(x for name, x in expected.items() if name not in WATCHED)
    check_graph(folder / STEP, other_given, weighed)

    kept = [name for name in parts if name in step["inputs"]]  # the others have no influence
    axes = {"tokens": ("batch", "length"), "lengths": ("batch",), "images": ("batch",)}
    encoder = write_graph(folder / ENCODER, _Encoder(traced, kept), inputs, axes, [*kept, *states])
    check_graph(folder / ENCODER, other_inputs, _Encoder(model, kept)(other_inputs))
    graphs = {ENCODER: encoder, STEP: step}
    described = meaning(
        step,
        given_attention="weights to use instead of the model's own, rows of zeros for none; a Transformer uses them in "
        "all heads of all decoder layers",
        attention="weights on the source, or on the cells of the image row by row; the given ones where there are any",
        heads="weights on the source of every decoder layer and head, the heads of the first layer first",
        scores="of the source positions before the softmax or sparsemax, and before the mask of a window",
        head_scores="the same of every decoder layer and head",
        aligned_position="p_t, the source position, counted from 0, around which the attention looks",
    )
    return {
        **_search_settings(model),
        "memory": kept,
        "state": dict(zip(states, after, strict=True)),
        "meaning": described,
        "graphs": graphs,
    }


def _axes(x: Tensor, other: Tensor, *first: str, grows: str = "length") -> tuple[str | None, ...]:
    """Names of the first axes, and of those that differ between two examples."""
    pairs = list(zip(x.shape, other.shape, strict=True))[len(first) :]
    return *first, *(grows if n != m else None for n, m in pairs)


def _search_settings(model: Any) -> dict[str, Any]:
    """This package's search settings: at most source tokens * per_source_token (rounded down) + more tokens.

    Both counts include EOS; `max_source_tokens` does not.
    """
    if isinstance(model, CaptioningModule):
        task, never, limit = "captioning", model.forbidden(), {"per_source_token": 0, "more": MAX_WORDS}
    else:
        size = model.config["tgt_vocab_size"]
        unused = range(len(model.tgt_tokenizer) if model.tgt_tokenizer else size, size)
        task, never = "translation", [PAD, UNK, BOS, *unused]
        limit = {"per_source_token": PER_SOURCE_TOKEN, "more": MORE}
    search = {
        "beam_size": model.config["beam_size"],
        "length_penalty": model.config["length_penalty"],
        "never": never,
        "max_length": limit,
    }
    found = {"task": task, "special_tokens": {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}, "search": search}
    if task == "translation":
        found["search"]["max_source_tokens"] = model.max_source_tokens
    else:
        found["images"] = (
            "RGB; cut as preprocessing.json says under resize, then bicubic to size x size pixels; the graph "
            "normalises them"
        )
    return found
