"""New rows in the embeddings and output layers of a trained model; the rows of all other words stay bit-identical.

Parameters stay the same objects, so tied and shared matrices stay tied and shared.

Shapes: V words, N new ones, E embedding size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.text import EOS, Tokenizer


def check_fits(tokenizer: Tokenizer, size: int, side: str = "") -> None:
    """Refuses the vocabulary of a data module that a new model has no rows for.

    Args:
        tokenizer: of the data.
        size: rows of the model.
        side: "src" or "tgt", for a model that has one vocabulary each.

    Raises:
        ValueError: it has more tokens than the model has rows.
    """
    found = len(tokenizer)
    if found <= size:
        return
    noun, unit = (f"{side} vocabulary", "tokens") if side else ("vocabulary", "words")
    option = f"{side}_vocab_size" if side else "the model's vocab_size"
    raise ValueError(
        f"the data has a {noun} of {found} {unit}, the model one of {size}; set {option} to at least {found}"
    )


def extend_embedding(table: nn.Embedding, known: int, size: int, pieces: Sequence[Sequence[int]] = ()) -> None:
    """Adds rows for the tokens known .. size-1; the table grows if necessary.

    A word made of known pieces gets the mean of their rows. Any other word gets a row like those of known words: each
    entry is drawn from the normal distribution of its column, with a fixed seed.

    Args:
        pieces: for each new token the known pieces it consists of, may be none.
    """
    words = _of_words(table.weight, known)
    noise = torch.randn(size - known, words.size(1), generator=torch.Generator().manual_seed(known))
    rows = words.mean(0) + words.std(0, correction=0) * noise.to(words)
    for row, ids in zip(rows, pieces):
        if ids:
            row[:] = table.weight.detach()[list(ids)].mean(0)
    _set_rows(table.weight, known, rows)
    table.num_embeddings = len(table.weight)


def extend_output(layer: nn.Linear, known: int, size: int, tied: bool) -> None:
    """Adds rows to an output layer, so that new words are hardly predicted before they are learnt.

    They get the mean row of the known words (a tied layer has the embedding's row) and the smallest of their biases.
    """
    if not tied:
        _set_rows(layer.weight, known, _of_words(layer.weight, known).mean(0).expand(size - known, -1))
    _set_rows(layer.bias, known, _of_words(layer.bias, known).min().expand(size - known))
    layer.out_features = len(layer.bias)


def place_vectors(table: nn.Embedding, known: int, vectors: Tensor, found: Tensor) -> None:
    """Maps word vectors into the rows known .. V-1 of an embedding, by least squares on the known words.

    Does nothing if fewer than 2 E known words have a vector.

    Args:
        vectors: (V, E) of any space.
        found: (V,) bool, True where there is a vector.
    """
    pairs = found.clone()
    pairs[: EOS + 1] = pairs[known:] = False
    if pairs.sum() < 2 * vectors.size(1):
        return
    rows = table.weight.detach()
    to_rows = torch.linalg.lstsq(vectors[pairs].double(), rows[: len(pairs)][pairs].double().cpu()).solution
    new = found.clone()
    new[:known] = False
    rows[: len(new)][new] = (vectors[new].double() @ to_rows).to(rows)


def _of_words(rows: Tensor, known: int) -> Tensor:
    """Rows of the known tokens except special ones; all rows if no others exist."""
    words = rows.detach()[EOS + 1 : known]
    return words if len(words) else rows.detach()


def _set_rows(parameter: Tensor, first: int, rows: Tensor) -> None:
    old = parameter.detach()
    parameter.data = torch.cat([old[:first], rows.to(old), old[first + len(rows) :]])
    parameter.grad = None
