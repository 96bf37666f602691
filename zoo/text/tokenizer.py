"""Tokenizers and special tokens, shared by models and data."""

import json
import reprlib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from itertools import chain, product
from typing import Any, Literal

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from zoo.text.characters import PlainForms
from zoo.text.cleaning import CLEANING, cleaner
from zoo.utils import strict_json

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL_NAMES = ("<pad>", "<unk>", "<s>", "</s>")
Kind = Literal["bpe", "word", "char", "word_punct"]
KINDS: tuple[Kind, ...] = ("bpe", "word", "char", "word_punct")

# The normaliser leaves no plain space inside a token, so a text can never produce a vocabulary entry with a space: a
# user who types "</s>" gets tokens for these four characters, not the end of the sentence.
_SPECIALS = [name.replace(">", " >") for name in SPECIAL_NAMES]
_SPACE = "▁"
_CACHED_WORDS = 2**18  # distinct words in the cache; when full, it is cleared
_CACHED_LENGTH = 64  # characters of the longest word in the cache

# Tokens of kind "word_punct": contractions as in the Penn Treebank (do n't, it 's, can not), letters and digits
# together (3.50 and 1,000 stay whole), every other character alone. The first half of a contraction ends where the
# second begins, so raw and tokenised text give the same tokens. Without the limit of 200 characters the library fails
# on longer ones.
_LETTER = r"[\p{L}\p{M}\p{N}]"
_NOT = rf"n't(?!{_LETTER})"
_PIECE = (
    rf"(?i){_NOT}|'(?:s|ll|re|ve|d|m)(?!{_LETTER})|can(?=not(?!{_LETTER}))"
    rf"|(?>(?:(?!{_NOT}){_LETTER}|(?<=\p{{N}})[.,](?=\p{{N}})){{1,200}})|\S"
)


class _WordCache(dict[str, list[Any]]):
    """Caches the segmentation of words: most words of a text were seen before, and the cache is ten times as fast."""

    def __init__(self, cut: Callable[[str], list[Any]]) -> None:
        super().__init__()
        self._cut = cut

    def __missing__(self, word: str) -> list[Any]:
        if len(self) >= _CACHED_WORDS:
            self.clear()
        pieces = self._cut(word)
        if len(word) <= _CACHED_LENGTH:
            self[word] = pieces
        return pieces


class Tokenizer:
    """Text to token ids and back, on a `tokenizers.Tokenizer`; ids 0..3 are PAD, UNK, BOS, EOS.

    Text is normalised to Unicode NFC, and every run of white space (including no-break spaces) becomes one plain space.
    For text of known characters `decode(encode(text))` is exactly that normalised text; unknown characters become UNK.

    Attributes:
        kind: how text is split, see `train`.
        cleaning: names of the cleaning steps before splitting, see `clean`.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        kind: Kind,
        cleaning: Sequence[str] = (),
    ) -> None:
        self.kind: Kind = kind
        self._backend, self.cleaning = backend, tuple(name for name in CLEANING if name in cleaning)
        self._clean = cleaner(self.cleaning)
        self._ids = _WordCache(lambda word: backend.encode(word, add_special_tokens=False).ids)
        found = [backend.id_to_token(i) for i in range(len(_SPECIALS))]
        if found != _SPECIALS:
            raise ValueError(f"not a tokenizer of this package: its first entries must be {_SPECIALS}; got {found}")

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        kind: Kind = "bpe",
        vocab_size: int = 8000,
        lowercase: bool = False,
        min_frequency: int = 1,
        cleaning: Sequence[str] = (),
    ) -> "Tokenizer":
        """Learns a vocabulary; memory grows with the number of distinct words, not with the text.

        Args:
            texts: sentences, read once.
            kind: "bpe" subwords (punctuation always separate), "word" (split only at spaces: for tokenised text),
                "char", or "word_punct" (whole words, punctuation marks and contractions of plain text: "don't!"
                gives "do", "n't", "!", and so does "do n't !").
            vocab_size: maximum size, including the four special tokens.
            lowercase: lowercase the text, here and in `encode`.
            min_frequency: less frequent words become UNK (kind "bpe": less frequent pairs are not merged).
            cleaning: names of cleaning steps, applied first here and in `encode`: "invisible" (soft hyphens and the
                like are dropped), "html" (HTML tags become line ends or nothing, entities become characters),
                "treebank" (-LRB- and other escapes of the Penn Treebank become their characters), "quotes" (double
                quotation marks become `` and '', as in the Penn Treebank).
        """
        if odd := [name for name in cleaning if name not in CLEANING]:
            raise ValueError(f"cleaning must be some of {', '.join(map(repr, CLEANING))}; got {odd[0]!r}")
        clean = cleaner(tuple(name for name in CLEANING if name in cleaning))
        texts = map(clean, texts)
        if kind not in KINDS:
            raise ValueError(f"tokenizer must be one of {str(KINDS)[1:-1]}; got {kind!r}")
        if vocab_size <= len(_SPECIALS):
            raise ValueError(f"vocab_size must be greater than {len(_SPECIALS)} (the special tokens); got {vocab_size}")
        if min_frequency < 1:
            raise ValueError(f"min_frequency must be at least 1; got {min_frequency}")
        backend = _assemble(kind, lowercase, {}, [])
        if kind == "word_punct":
            vocab = cls._learn_pieces(texts, backend, vocab_size, min_frequency)
            return cls(_assemble(kind, lowercase, vocab, []), kind, cleaning)
        if kind == "word":
            trainer = trainers.WordLevelTrainer(
                vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=_SPECIALS, show_progress=False
            )
        else:
            alphabet = vocab_size - len(_SPECIALS)
            trainer = trainers.BpeTrainer(
                vocab_size=vocab_size if kind == "bpe" else 0,  # characters only: an alphabet without merges
                limit_alphabet=(alphabet + 1) // 2 if kind == "bpe" else alphabet,
                min_frequency=min_frequency,
                special_tokens=_SPECIALS,
                show_progress=False,
            )
        backend.train_from_iterator(texts, trainer)
        model = json.loads(backend.to_str())["model"]
        # rebuilt, because the library would otherwise search every text for the special tokens
        return cls(_assemble(kind, lowercase, model["vocab"], model.get("merges", [])), kind, cleaning)

    def clean(self, text: str) -> str:
        """A raw text, cleaned as the training text was; call this before splitting a text in any other way.

        Raises:
            ValueError: it is not valid Unicode.
        """
        check_unicode(text)
        return self._clean(text)

    def plain(self, text: str) -> str:
        """A text as users write it, with plain forms of the characters that the vocabulary lacks, see `PlainForms`.

        Training, scores and perplexity read a text as it is; this is for the texts of users, before `encode`.

        Raises:
            ValueError: it is not valid Unicode.
        """
        check_unicode(text)
        return unicodedata.normalize("NFC", text).translate(self._plain_forms)

    @cached_property
    def _plain_forms(self) -> PlainForms:
        entries = (self._backend.id_to_token(i) or "" for i in range(EOS + 1, len(self)))
        known = set(chain.from_iterable(entries))
        if self._backend.normalizer.normalize_str("A") == "a":  # it reads capitals in lower case
            known |= {large for character in known if len(large := character.upper()) == 1}
        return PlainForms(known, self._is_unknown)

    def _is_unknown(self, text: str) -> bool:
        ids = self._backend.encode(self._clean(text), add_special_tokens=False).ids  # not remembered as a word
        return UNK in ids or not ids

    def cleaning_steps(self) -> list[tuple[str, str]]:
        """The steps of `clean` as regular expressions with replacements, in order."""
        return [pair for name in self.cleaning for pair in CLEANING[name]]

    def cleaning_also(self, cleaning: Iterable[str]) -> "Tokenizer":
        """This tokenizer with more `cleaning`; the ids of a clean text do not change."""
        if {*cleaning} <= {*self.cleaning}:
            return self
        return Tokenizer(self._backend, self.kind, [*self.cleaning, *cleaning])

    @staticmethod
    def _learn_pieces(
        texts: Iterable[str], backend: tokenizers.Tokenizer, vocab_size: int, min_frequency: int
    ) -> dict[str, int]:
        """Kind "word_punct": the library's own trainer would search the parts of every word again, ten times slower."""
        normalizer, pre_tokenizer = backend.normalizer, backend.pre_tokenizer

        def pieces(word: str) -> list[str]:
            return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(word))]

        cache = _WordCache(pieces)
        counts = Counter(chain.from_iterable(map(cache.__getitem__, chain.from_iterable(map(_split, texts)))))
        frequent = (piece for piece, count in counts.items() if count >= min_frequency)
        words = sorted(frequent, key=lambda piece: (-counts[piece], piece))[: vocab_size - len(_SPECIALS)]
        return {word: i for i, word in enumerate(_SPECIALS + words)}

    def extended(self, words: Iterable[str]) -> "Tokenizer":
        """This tokenizer with words appended to its vocabulary; ids, and the tokens of text without these words, stay.

        Args:
            words: new whole words, in this order (kind "char": characters); known ones are skipped.

        Raises:
            ValueError: a word that this tokenizer splits.
            TypeError: one text instead of a list of words.
        """
        if isinstance(words, str):
            raise TypeError(f"the words must be a list of texts; got the text {words!r}")
        spec = json.loads(self.to_json())
        vocab: dict[str, int] = spec["model"]["vocab"]
        for word in words:
            pieces = self._cut(word)
            if len(pieces) != 1:
                raise ValueError(
                    f"{word!r} is not one word to this tokenizer, which splits it into {pieces}; give single words"
                )
            vocab.setdefault(pieces[0], len(vocab))
        if len(vocab) == len(self):
            return self
        if self.kind == "bpe":
            spec["model"]["ignore_merges"] = (
                True  # a whole word of the vocabulary is one token, even if merges cannot build it
            )
        return Tokenizer.from_json(json.dumps(spec, ensure_ascii=False))

    def lacking(self, texts: Iterable[str], count: int, min_frequency: int = 1) -> list[str]:
        """The words of texts that `extended` could add, most frequent first.

        For kind "bpe" these are words after a space that take several tokens; for kind "char" characters; else words
        that become UNK.

        Args:
            texts: read once.
            count: maximum number of words.
            min_frequency: less frequent words are skipped.
        """
        counts: Counter[str] = Counter()
        for word, times in Counter(chain.from_iterable(map(self._split, texts))).items():
            for piece in self._cut(word):
                whole = self.kind != "bpe" or (piece[0] == _SPACE and piece != _SPACE)
                if whole and self._backend.token_to_id(piece) is None:
                    counts[piece[1:] if self.kind == "bpe" else piece] += times
        frequent = (word for word, times in counts.items() if times >= min_frequency)
        return sorted(frequent, key=lambda word: (-counts[word], word))[:count]

    def _cut(self, text: str) -> list[str]:
        """What `extended` would add for a text, in the form of vocabulary entries."""
        text = self._backend.normalizer.normalize_str(text)
        if self.kind == "char":
            return list(text)
        return [piece for piece, _ in self._backend.pre_tokenizer.pre_tokenize_str(text)]

    def _split(self, text: str) -> list[str]:
        return _split(self.clean(text))

    def __len__(self) -> int:
        return self._backend.get_vocab_size()

    def __reduce__(self) -> tuple:
        return Tokenizer.from_json, (self.to_json(),)

    def encode(self, text: str) -> list[int]:
        """Token ids of one text, without special tokens; [] for an empty text."""
        words = self._split(text)
        if self.kind == "char":
            return self._backend.encode(" ".join(words), add_special_tokens=False).ids
        return list(chain.from_iterable(map(self._ids.__getitem__, words)))

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Token ids of many texts, without special tokens."""
        return [self.encode(text) for text in texts]

    def words(self, text: str) -> list[str]:
        """The tokens of a text as written there, one for each id of `encode`.

        Kinds "word" and "word_punct" keep the case, and the words that become UNK; other kinds give the same as
        `tokens`.
        """
        if self.kind not in ("word", "word_punct"):
            return self.tokens(self.encode(text))
        encodings = ((word, self._backend.encode(word, add_special_tokens=False)) for word in self._split(text))
        return [word[start:end] for word, encoding in encodings for start, end in encoding.offsets]

    def decode(self, ids: Sequence[int], unknown: str = "") -> str:
        """Plain text of token ids (kinds "word", "word_punct": spaces between all tokens), without special tokens.

        Args:
            ids: token ids.
            unknown: what stands for UNK; nothing if not given.
        """
        pieces = [unknown if i == UNK else self._backend.id_to_token(int(i)) for i in ids if i == UNK or i > EOS]
        pieces = [piece for piece in pieces if piece]
        if self.kind in ("word", "word_punct"):
            return " ".join(pieces)
        return self._backend.decoder.decode(pieces).strip()

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """One readable label per id, for plots: plain words, inner parts of a word as "·part", spaces as "▁"."""
        return [self._label(int(i)) for i in ids]

    def _label(self, i: int) -> str:
        if i <= EOS:
            return SPECIAL_NAMES[i]
        piece = self._backend.id_to_token(i)
        if piece is None:  # the model has a larger vocabulary
            return SPECIAL_NAMES[UNK]
        if self.kind != "bpe" or piece == _SPACE:
            return piece
        if piece.startswith(_SPACE):
            return piece[1:]
        return f"·{piece}" if piece.isalnum() else piece

    def to_json(self) -> str:
        """The whole tokenizer as one JSON text (the `tokenizer.json` format of the `tokenizers` library)."""
        if not self.cleaning:
            return self._backend.to_str()
        spec = json.loads(self._backend.to_str())
        spec["normalizer"]["normalizers"][:0] = [step for name in self.cleaning for step in _steps(name)]
        return json.dumps(spec, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, most: int = 1_000_000, name: str = "the text") -> "Tokenizer":
        """The inverse of `to_json`. Uses only its words; the way of splitting must be one of the kinds of `train`.

        Args:
            text: what `to_json` gave.
            most: maximum number of entries.
            name: name of the text in messages.

        Raises:
            ValueError: it is not JSON, not a tokenizer of this package, or has too many entries.
        """
        try:
            spec = strict_json.loads(text, most)
            cleaning = _take_cleaning(spec)
            vocab, merges = dict(spec["model"]["vocab"]), list(spec["model"].get("merges") or [])
            found = _plan(spec)
            # on such a merge the library may panic, which is not an Exception
            odd_merge = next((pair for pair in merges if type(pair) is not list or not _is_merge(pair, vocab)), None)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ValueError(f"{name} is not a tokenizer in JSON form: {error}") from error
        if len(vocab) > most:
            raise ValueError(
                f"{name} has {len(vocab):,} entries; at most {most:,} are allowed, the vocabulary of the model"
            )
        if set(map(type, vocab.values())) != {int} or sorted(vocab.values()) != list(range(len(vocab))):
            raise ValueError(
                f"{name} is not a tokenizer of this package: its entries must be numbered 0, 1, 2 and so on"
            )
        if odd_merge is not None:
            got = f"it merges {reprlib.repr(odd_merge)}, but both parts and the whole must be entries"
            raise ValueError(f"{name} is not a tokenizer of this package: {got}")
        plans = {choice: _plan_of(*choice) for choice in product(KINDS, (False, True), (False, True))}
        choice = next((choice for choice, plan in plans.items() if plan == found), None)
        if choice is None:
            odd = [key for key in found if all(plan.get(key) != found[key] for plan in plans.values())] or [
                "combination of its parts"
            ]
            raise ValueError(
                f"{name} is not a tokenizer of this package: no kind of it has this {', '.join(odd[:3])}"[:200]
            )
        kind, lowercase, whole_words = choice
        try:
            return cls(_assemble(kind, lowercase, vocab, merges, whole_words), kind, cleaning)
        except ValueError as error:
            raise ValueError(f"{name} is {error}") from error
        except Exception as error:  # the library raises bare `Exception`
            raise ValueError(f"{name} is not a tokenizer in JSON form: {error}") from error


def _assemble(
    kind: str, lowercase: bool, vocab: dict[str, int], merges: list[tuple[str, str]], whole_words: bool = False
) -> tokenizers.Tokenizer:
    """A tokenizer of the library: the stages of a kind with given words; for `whole_words` see `extended`."""
    steps = [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    steps += [normalizers.Lowercase()] * lowercase + [normalizers.Replace("’", "'")] * (kind == "word_punct")
    unk = _SPECIALS[UNK]
    if kind in ("word", "word_punct"):
        backend = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token=unk))
        backend.pre_tokenizer = _pieces() if kind == "word_punct" else pre_tokenizers.WhitespaceSplit()
    else:
        prepend = "never" if kind == "char" else "always"
        space = pre_tokenizers.Metaspace(_SPACE, prepend_scheme=prepend, split=kind == "bpe")
        pairs = [(first, second) for first, second in merges]
        backend = tokenizers.Tokenizer(
            models.BPE(vocab, pairs, unk_token=unk, fuse_unk=True, ignore_merges=whole_words)
        )
        punctuation = pre_tokenizers.Punctuation("isolated")
        backend.pre_tokenizer = space if kind == "char" else pre_tokenizers.Sequence([space, punctuation])
        backend.decoder = decoders.Metaspace(_SPACE, prepend_scheme=prepend)
    backend.normalizer = normalizers.Sequence(steps)
    return backend


def _steps(name: str) -> list[dict[str, Any]]:
    """The JSON form of `CLEANING[name]`."""
    return [
        {"type": "Replace", "pattern": {"Regex": pattern}, "content": content} for pattern, content in CLEANING[name]
    ]


def _take_cleaning(spec: dict[str, Any]) -> list[str]:
    """Removes cleaning steps from the front of the normaliser in a tokenizer's JSON and returns their names."""
    steps, found = spec["normalizer"]["normalizers"], []
    for name in CLEANING:
        if steps[: len(CLEANING[name])] == _steps(name):
            del steps[: len(CLEANING[name])]
            found.append(name)
    return found


def _is_merge(parts: list[str], vocab: dict[str, int]) -> bool:
    return len(parts) == 2 and parts[0] in vocab and parts[1] in vocab and parts[0] + parts[1] in vocab


@cache  # its pattern takes longer to compile than a small vocabulary
def _pieces() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(_PIECE), "removed", invert=True)


@cache
def _plan_of(kind: str, lowercase: bool, whole_words: bool) -> dict[str, Any]:
    return _plan(json.loads(_assemble(kind, lowercase, {}, [], whole_words).to_str()))


def _plan(spec: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a tokenizer without its words and disabled options, which differ between library versions."""

    def on(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: on(part) for key, part in value.items() if part not in (None, False)}
        return [on(part) for part in value] if isinstance(value, list) else value

    return on({**spec, "model": {key: part for key, part in spec["model"].items() if key not in ("vocab", "merges")}})


def check_unicode(text: str) -> None:
    """Raises ValueError, which names the character, for a text that cannot be written as UTF-8."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        of_bytes = 0xDC80 <= code <= 0xDCFF  # Python's surrogate for an undecodable byte
        what = (
            f"byte 0x{code - 0xDC00:02x}, so it is not UTF-8" if of_bytes else f"half a surrogate pair, \\u{code:04x}"
        )
        raise ValueError(f"the text is not valid Unicode: character {error.start + 1:,} is {what}") from error


def _split(text: str) -> list[str]:
    return unicodedata.normalize("NFC", text).split()
