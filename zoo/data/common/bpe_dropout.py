"""BPE-dropout: a word is segmented differently each time it is seen in training (Provilkov et al. 2020)."""

import json
import random

import numpy as np

from zoo.text import EOS, UNK, Tokenizer

_VARIANTS = 32  # random segmentations kept of each word; each use picks one of them


class BpeDropout:
    """Replaces the segmentation of tokenised text by random ones.

    The segmentations of a word depend only on the word and `seed`, so resumed and parallel runs agree.

    Args:
        tokenizer: a "bpe" tokenizer.
        rate: probability with which each possible merge is skipped in each step (the paper uses 0.1).
        seed: selects the random segmentations.
    """

    def __init__(self, tokenizer: Tokenizer, rate: float, seed: int = 0) -> None:
        if tokenizer.kind != "bpe":
            raise ValueError(f"bpe_dropout needs tokenizer 'bpe'; got {tokenizer.kind!r}")
        model = json.loads(tokenizer.to_json())["model"]
        vocab: dict[str, int] = model["vocab"]
        self._rate, self._seed = rate, seed
        self._merges = {
            (vocab[left], vocab[right]): (rank, vocab[left + right])
            for rank, (left, right) in enumerate(model["merges"])
        }
        merged = {i for _, i in self._merges.values()}
        # added as whole words
        self._whole = {i for piece, i in vocab.items() if i > EOS and len(piece) > 1 and i not in merged}
        self._characters: list[tuple[int, ...]] = [(i,) for i in range(len(vocab))]
        self._starts_word = np.zeros(len(vocab), bool)
        for piece, i in vocab.items():
            if i > EOS:
                self._characters[i] = tuple(vocab.get(character, UNK) for character in piece)
                self._starts_word[i] = piece[0] == "▁"
        self._variants: dict[tuple[int, ...], list[list[int] | None]] = {}  # each computed when first picked

    def __call__(self, rows: list[np.ndarray], rng: np.random.Generator) -> list[list[int]]:
        """Random segmentations of sentences.

        Args:
            rows: token ids of each sentence, without special tokens, none empty.
            rng: picks the segmentation of each word.
        """
        ids = np.concatenate(rows)
        first = np.cumsum([0, *map(len, rows[:-1])])
        starts = self._starts_word[ids]
        starts[first] = True
        bounds = np.append(np.flatnonzero(starts), len(ids)).tolist()
        picks = rng.integers(_VARIANTS, size=len(bounds) - 1).tolist()
        flat, sentence_starts = ids.tolist(), set(first.tolist())
        sentences: list[list[int]] = []
        for start, end, pick in zip(bounds, bounds[1:], picks):
            if start in sentence_starts:
                sentences.append([])
            sentences[-1] += self._word(tuple(flat[start:end]), pick)
        return sentences

    def _word(self, word: tuple[int, ...], pick: int) -> list[int]:
        variants = self._variants.get(word)
        if variants is None:
            variants = self._variants[word] = [None] * _VARIANTS
        pieces = variants[pick]
        if pieces is None:
            pieces = variants[pick] = self._segment(word, random.Random(f"{self._seed} {pick} {word}"))
        return pieces

    def _segment(self, word: tuple[int, ...], rng: random.Random) -> list[int]:
        """Algorithm 1 of the paper: each step applies the first merge that is not skipped.

        A piece that cannot be built by merges is skipped or kept as a whole.
        """
        kept = [piece in self._whole and rng.random() >= self._rate for piece in word]
        pieces = [part for piece, whole in zip(word, kept) for part in ((piece,) if whole else self._characters[piece])]
        while True:
            possible = [
                (*merge, i)
                for i, pair in enumerate(zip(pieces, pieces[1:]))
                if (merge := self._merges.get(pair)) and rng.random() >= self._rate
            ]
            if not possible:
                return pieces
            _, merged, i = min(possible)
            pieces[i : i + 2] = [merged]
