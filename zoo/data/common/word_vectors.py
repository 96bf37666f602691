"""Pretrained word vectors: read from a file, or learnt from the training text by word2vec."""

import io
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import torch
from torch import Tensor

from zoo.data.common.cache import read_file, write_file
from zoo.data.common.files import decompressed
from zoo.text import EOS, Tokenizer
from zoo.utils.extras import require
from zoo.utils.places import at_home
from zoo.utils.regular import check_regular

_CHUNK = 1024  # examples read together
_LONGEST = 10_000  # words of a sentence that word2vec uses

log = logging.getLogger(__name__)


class TrainingText(Protocol):
    """Tokenised texts from which word2vec learns."""

    def __len__(self) -> int: ...

    def sentences(self, index: np.ndarray) -> Sequence[Sequence[np.ndarray]]:
        """Word ids of the sentences of some texts."""
        ...

    def release(self) -> None:
        """Releases the pages read so far."""


def check_word_vectors(word_vectors: str) -> None:
    """Raises early if `word_vectors` cannot work.

    Raises:
        FileNotFoundError: no such file.
        ValueError: word2vec is requested but not installed, or the path is a folder or a pipe.
    """
    if word_vectors == "word2vec":
        require("word2vec", 'word_vectors "word2vec"')
    elif at_home(word_vectors).exists():
        check_regular(at_home(word_vectors))
    else:
        raise FileNotFoundError(
            f"word_vectors must be 'word2vec' or a file of word vectors; there is no file {word_vectors!r}"
        )


def file_signature(word_vectors: str) -> list[object]:
    """What the vectors read from a file depend on, besides the vocabulary."""
    return [at_home(word_vectors), "words in any case"]


def cached_vectors(
    path: Path,
    word_vectors: str,
    tokenizer: Tokenizer,
    size: int,
    training_text: Sequence[TrainingText],
    epochs: int,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """The vectors of a vocabulary of V words, from the cache or computed now.

    Args:
        path: file in the cache.
        word_vectors: "word2vec", or a file of word vectors.
        tokenizer: tokenizer with the vocabulary.
        size: dimension of the vectors.
        training_text: what word2vec learns from.
        epochs: passes of word2vec over it.
        seed: initial vectors and samples of word2vec.

    Returns:
        (V, size) float32, 0 for a word without a vector, and (V,) bool: whether it has one.
    """
    content = read_file(path)
    if content is not None:
        vectors = np.load(io.BytesIO(content))
    elif word_vectors == "word2vec":
        vectors = _word2vec(training_text, len(tokenizer), size, epochs, seed)
    else:
        vectors = read_vectors(at_home(word_vectors), tokenizer, size)
    if content is None:
        buffer = io.BytesIO()
        np.save(buffer, vectors)
        write_file(path, buffer.getvalue())
    found = ~np.isnan(vectors).any(1)
    return torch.from_numpy(np.nan_to_num(vectors)), torch.from_numpy(found)


def read_vectors(path: Path, tokenizer: Tokenizer, size: int) -> np.ndarray:
    """Vectors of the words of a vocabulary, (V, size) float32, rows of NaN for words that the file lacks.

    A word that is not in the file takes the first vector whose word differs only in case.

    Args:
        path: GloVe text (a word and its numbers per line, with spaces or tabs between them), word2vec or fastText text
            (the first line has the number of words and the dimension), plain, .gz or .xz; or word2vec binary.
        tokenizer: tokenizer with the vocabulary.
        size: dimension of the vectors.

    Raises:
        ValueError: the vectors have another dimension, or the file is not in one of these formats.
    """
    vectors = np.full((len(tokenizer), size), np.nan, np.float32)
    words = tokenizer.tokens(range(len(tokenizer)))
    alike: dict[str, list[int]] = defaultdict(list)  # ids of the words that differ only in case
    for i, word in enumerate(words):
        if i > EOS:
            alike[word.lower()].append(i)
    exact = np.zeros(len(tokenizer), bool)
    for word, numbers in _entries(path, size):
        for i in alike.get(word.lower(), ()):
            same = words[i] == word
            if not exact[i] and (same or np.isnan(vectors[i, 0])) and (row := numbers()) is not None:
                vectors[i], exact[i] = row, same
    log.info(f"{path}: vectors for {int((~np.isnan(vectors[:, 0])).sum()):,} of {len(words) - EOS - 1:,} words")
    return vectors


def _entries(path: Path, size: int) -> Iterator[tuple[str, Callable[[], np.ndarray | None]]]:
    """Each word of a vector file, with a function that reads its vector; valid until the next word."""
    with decompressed(path) as file:
        fields = file.readline(1 << 16).split()
        header = len(fields) == 2 and all(field.isdigit() for field in fields)
        found = int(fields[1]) if header else len(fields) - 1
        if found < 1 or not _is_number(fields[-1]):
            raise ValueError(
                f"{path} has no word vectors: expected a word and its numbers per line, or a word2vec file"
            )
        if found != size:
            raise ValueError(
                f"the vectors in {path} have {found} numbers each, the model's embedding has {size}; "
                "use vectors of that size, or change the embedding size"
            )
        if header and _is_binary(file, size):
            yield from _binary_entries(file, path, int(fields[0]), size)
            return
        if not header:
            file.seek(0)
        for number, line in enumerate(file, 1 + header):
            line = line.replace(b"\t", b" ")
            word = line.partition(b" ")[0]
            yield word.decode("utf-8", "replace"), partial(_numbers, line, word, size, f"{path}, line {number}")


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _is_binary(file: BinaryIO, size: int) -> bool:
    """Whether the first word is followed by binary numbers, not by text."""
    start = file.tell()
    fields = file.readline(1 << 16).split()[1:]
    file.seek(start)
    return len(fields) < size or bool(b"".join(fields[-size:]).translate(None, b"0123456789.+-eE"))


def _numbers(line: bytes, word: bytes, size: int, where: str) -> np.ndarray | None:
    """The vector of a line; None if it belongs to a word with spaces."""
    fields = line.rstrip().rsplit(b" ", size)
    try:
        numbers = np.array(fields[1:]).astype(np.float32)
    except ValueError as error:
        raise ValueError(f"{where}: expected a word and {size} numbers; {error}") from error
    if len(numbers) != size:
        raise ValueError(f"{where}: expected a word and {size} numbers; got {len(numbers)} numbers")
    return numbers if fields[0] == word else None


def _binary_entries(
    file: BinaryIO, path: Path, count: int, size: int
) -> Iterator[tuple[str, Callable[[], np.ndarray | None]]]:
    block, start = b"", 0
    for number in range(count):
        while (space := block.find(b" ", start)) < 0 or len(block) <= space + 4 * size:
            more = file.read(1 << 20)
            if not more:
                raise ValueError(f"{path} ends after {number:,} of its {count:,} words; download it again")
            block, start = block[start:] + more, 0
        word = block[start:space].lstrip(b"\n").decode("utf-8", "replace")
        yield word, partial(np.frombuffer, block, "<f4", size, space + 1)
        start = space + 1 + 4 * size


class _Sentences:
    """The sentences of the training text as lists of word ids as strings, which word2vec reads again in each epoch."""

    def __init__(self, training_text: Sequence[TrainingText]) -> None:
        self._training_text = training_text

    def __iter__(self) -> Iterator[list[str]]:
        for arrays in self._training_text:
            total = len(arrays)
            for first in range(0, total, _CHUNK):
                for sentences in arrays.sentences(np.arange(first, min(first + _CHUNK, total))):
                    for sentence in sentences:
                        words = list(map(str, sentence.tolist()))
                        yield from (words[i : i + _LONGEST] for i in range(0, len(words), _LONGEST))
                arrays.release()


def _word2vec(training_text: Sequence[TrainingText], vocab_size: int, size: int, epochs: int, seed: int) -> np.ndarray:
    """Skip-gram vectors of all words of the training text, including UNK (Mikolov et al. 2013)."""
    from gensim.models import Word2Vec  # an optional dependency

    # With more than one worker the vectors would not be reproducible.
    model = Word2Vec(
        _Sentences(training_text), vector_size=size, sg=1, min_count=1, epochs=epochs, seed=seed, workers=1
    )
    vectors = np.full((vocab_size, size), np.nan, np.float32)
    words: list[str] = model.wv.index_to_key  # pyright: ignore[reportAssignmentType]  # it begins as a list of None
    vectors[list(map(int, words))] = model.wv.vectors
    return vectors
