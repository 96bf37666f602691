"""Translation data sets: your own files, Multi30k, Tatoeba."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from zoo.data.common.base import Split
from zoo.data.common.download import RemoteFile
from zoo.data.common.files import (
    check_fraction,
    check_partners,
    draw,
    held_out_below,
    is_pattern,
    named_file,
    named_files,
    sampled,
)
from zoo.data.common.parquet import is_parquet
from zoo.data.translation import names
from zoo.data.translation.base import PairData, PairOptions, PublishedPairs
from zoo.data.translation.pair_files import COLUMNS, has_names, read_pairs, seems_numbered
from zoo.utils.numbers_given import check_at_least
from zoo.utils.unpack import Unpack

log = logging.getLogger(__name__)
ENOUGH_TO_HOLD_OUT = 100  # pairs for validation, unless a hundredth is more


class ParallelText(PairData):
    """Your own text: two aligned files per split, or one file with both sides; plain, .gz or .xz; or .parquet.

    A name may be a pattern, such as `"shards/*.en.gz"`, for a text in many files. They are read one after the other,
    sorted by name, and the target has a file for each file of the source. Memory does not grow with the text.

    Args:
        train_src: source sentences, one per line; or, if `train_tgt` is left out, tab-separated pairs, or a .csv,
            .jsonl or .parquet file with a column for each side.
        train_tgt: target sentences; line n translates line n of `train_src`.
        val_src: the same for validation; if left out, a part of the training pairs is held out.
        val_tgt: the same for validation.
        test_src: the same for testing.
        test_tgt: the same for testing.
        val_fraction: share of the training sentences held out if there is no `val_src`; None: a tenth of them, at most
            about 100 pairs, or a hundredth if that is more. The split is by source sentence, so a repeated one is never
            on both sides.
        split_seed: selects the sentences that are held out.
        tgt_lang: ISO 639 code of the target language; used only for scores.
        src_column: column of the source in a file with both sides; in .parquet, a dot leads into a structure, as in
            "translation.en". A tab-separated file needs no header: without one that names both columns, they are the
            first two, or those of two numbers, as "2" and "4".
        tgt_column: column of the target.
        train_size: number of training pairs, the first of a fixed shuffle; None: all.
        **options: see `PairData`; relative paths start from `root` (else `ZOO_DATA`) if they exist there,
            otherwise from the working directory.
    """

    own_files: ClassVar[Mapping[str, str]] = {
        "train_src": "a file with source, tab and target on each line, or one with a source sentence per line beside "
        "--data.train_tgt FILE with the translations"
    }

    def __init__(
        self,
        train_src: str,
        train_tgt: str | None = None,
        val_src: str | None = None,
        val_tgt: str | None = None,
        test_src: str | None = None,
        test_tgt: str | None = None,
        val_fraction: float | None = None,
        split_seed: int = 0,
        tgt_lang: str = "en",
        src_column: str = COLUMNS[0],
        tgt_column: str = COLUMNS[1],
        train_size: int | None = None,
        **options: Unpack[PairOptions],
    ) -> None:
        super().__init__(**options)
        if val_fraction is not None:
            check_fraction("val_fraction", val_fraction)
        check_at_least(train_size=(train_size, 1))
        self.train_size = train_size
        self.columns = src_column, tgt_column
        self.paths = {"train": (train_src, train_tgt), "val": (val_src, val_tgt), "test": (test_src, test_tgt)}
        for split, (src, tgt) in self.paths.items():
            if tgt and not src:
                raise ValueError(f"{split}_tgt is given without {split}_src")
        self.val_fraction, self.split_seed, self.tgt_lang = val_fraction, split_seed, tgt_lang
        self.tokenized = self.kind == "word"  # the only use of this kind

    def _check_files(self, splits: Sequence[Split]) -> None:
        for split in splits:
            if self.paths[split][0]:
                self._files(split)

    def fetch(self) -> None:
        """Warns of texts that are numbers."""
        for src, tgt in self._files("train"):
            if tgt is None and not self._has_columns(src) and seems_numbered(src):
                log.warning(
                    f"{src}: its first column has only numbers; if they are no texts, choose two others, as with "
                    "--data.src_column 2 --data.tgt_column 4"
                )

    def _has_columns(self, path: Path) -> bool:
        """Whether a file of both sides is read by the names or numbers of columns."""
        return self.columns != COLUMNS or has_names(path)

    def signature(self) -> list[object]:
        held_out = None if self.paths["val"][0] else [self._share, self.split_seed]
        files = self._files("train")
        columns = [list(self.columns)] if any(tgt is None and self._has_columns(src) for src, tgt in files) else []
        return [*(path for pair in files for path in pair), *columns, held_out, *_sample(self.train_size)]

    def train_pairs(self) -> Iterator[tuple[str, str]]:
        pairs = self._read("train")
        kept = pairs if self.paths["val"][0] else (pair for pair in pairs if not self._is_held_out(pair))
        return sampled(kept, self.train_size)

    def val_pairs(self) -> list[tuple[str, str]]:
        if self.paths["val"][0]:
            return self._filled("validation", self._read("val"))
        return self._filled("validation", (pair for pair in self._read("train") if self._is_held_out(pair)))

    def test_sets(self) -> list[list[tuple[str, str]]]:
        if not self.paths["test"][0]:
            raise ValueError("there is no test text: give test_src and test_tgt, or test_src with tab-separated pairs")
        return [self._filled("test", self._read("test"))]

    def _filled(self, name: str, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """The pairs that have two texts: nothing is to be learnt from the score of an empty one."""
        found = list(pairs)
        filled = [pair for pair in found if all(text.strip() for text in pair)]
        if len(filled) < len(found):
            self._tell(f"{len(filled):,} {name} pairs; left out {len(found) - len(filled):,} with an empty side")
        return filled

    def _all_splits(self) -> list[Split]:
        return ["train", "val", *(["test"] if self.paths["test"][0] else [])]

    def _is_held_out(self, pair: tuple[str, str]) -> bool:
        return draw(pair[0], self.split_seed) < self._limit

    @cached_property
    def _share(self) -> float:
        """The share of the sentences that is to be held out."""
        if self.val_fraction is not None:
            return self.val_fraction
        pairs = sum(1 for _ in islice(self._read("train"), ENOUGH_TO_HOLD_OUT * 100))
        return max(0.01, min(0.1, ENOUGH_TO_HOLD_OUT / max(pairs, 1)))

    @cached_property
    def _limit(self) -> float:
        """What is drawn below it is held out: at least one sentence.

        Raises:
            ValueError: there are no two different sentences.
        """
        sources, alike = (src for src, _ in self._read("train")), "the training text has no two different sentences"
        return held_out_below(sources, self._share, self.split_seed, alike, "val_src")

    def _read(self, split: Split) -> Iterator[tuple[str, str]]:
        for src, tgt in self._files(split):
            yield from read_pairs(src, tgt, self.columns)

    def _files(self, split: Split) -> list[tuple[Path, Path | None]]:
        """The files of the source, each with that of the target; with None if it holds both sides."""
        src, tgt = self.paths[split]
        sources = named_files(self.root, f"{split}_src", src)
        if not tgt:
            return [(path, None) for path in sources]
        targets = named_files(self.root, f"{split}_tgt", tgt)
        if parquet := next(filter(is_parquet, [*sources, *targets]), None):
            raise ValueError(
                f"{parquet}: a .parquet file holds both sides; give it as {split}_src, without {split}_tgt, and name "
                "its columns with src_column and tgt_column"
            )
        if is_pattern(self.root, src) or is_pattern(self.root, tgt):
            check_partners(self.root, src, sources, tgt, targets)
        return list(zip(sources, targets))


def _sample(size: int | None) -> list[object]:
    """What a sample adds to the signature of the training pairs; nothing for all of them."""
    return [] if size is None else [{"train_size": size}]


_GITHUB = "https://raw.githubusercontent.com"

# Commit a3d2e0d. Raw text is gzipped upstream (checksum of the .gz file), tokenised text is not.
_MULTI30K_URL = f"{_GITHUB}/multi30k/dataset/a3d2e0d/data/task1/"
_MULTI30K_SHA256 = {
    "train.cs": "a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077",
    "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.fr": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.cs": "b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc",
    "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.fr": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.cs": "200a4a74cc9560f051924abb9803be008d1908d77f747e9141aeb86dfd2797f1",
    "test_2016_flickr.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.fr": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
    "test_2017_flickr.de": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "test_2017_flickr.en": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    "test_2017_flickr.fr": "3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496",
    # tokenised text: plain files upstream
    "tok/train.lc.norm.tok.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
    "tok/train.lc.norm.tok.en": "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
    "tok/train.lc.norm.tok.fr": "8fa41bb718412bcb7c5dfa58603842810a01543eae86a51279f9886b901266e1",
    "tok/val.lc.norm.tok.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    "tok/val.lc.norm.tok.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
    "tok/val.lc.norm.tok.fr": "b303e301aa21fe7822a846b2b3fb2d5a1121ec807cd5b1d006fb7b2b5507168a",
    "tok/test_2016_flickr.lc.norm.tok.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
    "tok/test_2016_flickr.lc.norm.tok.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
    "tok/test_2016_flickr.lc.norm.tok.fr": "1463bd5960f9bfe098ec3cd752d3df0c49c84dc646fb518964a29232658cd836",
    "tok/test_2017_flickr.lc.norm.tok.de": "02067e4a9402786a4fcb8c1b6f4307e4a5073ced64800abead5273b54f5f31f6",
    "tok/test_2017_flickr.lc.norm.tok.en": "c9d1dfd7a26add989382e534af235af9f0f658b2a30e7eb0efdaf142496ee54f",
    "tok/test_2017_flickr.lc.norm.tok.fr": "c0583117a47b31e8a6c6a97cfe8de153e462074668f4e994764fcc80b21d33b4",
    # not checked against a second copy
    "tok/train.lc.norm.tok.cs": None,
    "tok/val.lc.norm.tok.cs": None,
    "tok/test_2016_flickr.lc.norm.tok.cs": None,
}


class Multi30k(PublishedPairs):
    """Multi30k: image captions in English, German, French and Czech (Elliott et al. 2016, 2017; Barrault et al. 2018).

    29,000 / 1,014 / 1,000 pairs, and 1,000 more in `test_2017_flickr` (not in Czech).

    Args:
        src_lang: "en", "de", "fr" or "cs".
        tgt_lang: another of these.
        form: "raw" text, or "tok": upstream's lowercased, normalised, Moses-tokenised text.
        extra_pairs: your own files of additional training pairs, source and target separated by a tab (see
            `ParallelText`). Relative paths start from the working directory, not from `root`.
        train_size: number of training pairs, the first of a fixed shuffle; None: all. Those of `extra_pairs` come on
            top.
        **options: see `PairData`.
    """

    folder = "multi30k"
    cleaning = ("invisible", "html")
    remote: ClassVar[dict[str, RemoteFile]] = {
        name: RemoteFile(f"{_MULTI30K_URL}{name if name.startswith('tok/') else f'raw/{name}.gz'}", sha256)
        for name, sha256 in _MULTI30K_SHA256.items()
    }

    def __init__(
        self,
        src_lang: Literal["en", "de", "fr", "cs"] = "en",
        tgt_lang: Literal["en", "de", "fr", "cs"] = "de",
        form: Literal["raw", "tok"] = "raw",
        extra_pairs: list[str] | None = None,
        train_size: int | None = None,
        **options: Unpack[PairOptions],
    ) -> None:
        super().__init__(**options)
        check_at_least(train_size=(train_size, 1))
        self.train_size = train_size
        languages = ("en", "de", "fr", "cs")
        if src_lang not in languages or tgt_lang not in languages or src_lang == tgt_lang:
            raise ValueError(f"src_lang and tgt_lang must be two of {languages}; got {src_lang!r} and {tgt_lang!r}")
        if form not in ("raw", "tok"):
            raise ValueError(f"form must be 'raw' or 'tok'; got {form!r}")
        self.src_lang, self.tgt_lang, self.form, self.extra_pairs = src_lang, tgt_lang, form, extra_pairs or []
        self.tokenized = form == "tok"
        self.test_names = ["test_2016_flickr"]
        if "cs" not in (src_lang, tgt_lang):
            self.test_names.append("test_2017_flickr")

    def files(self, split: Split) -> list[str]:
        parts = self.test_names if split == "test" else [split]
        return [name for part in parts for name in self._names(part)]

    def signature(self) -> list[object]:
        files = [self.path(name) for name in self._names("train")]
        return [*files, *self._extra_files(), *_sample(self.train_size)]

    def train_pairs(self) -> Iterator[tuple[str, str]]:
        yield from sampled(self._read("train"), self.train_size)
        for file in self._extra_files():
            yield from read_pairs(file, None)

    def val_pairs(self) -> list[tuple[str, str]]:
        return list(self._read("val"))

    def test_sets(self) -> list[list[tuple[str, str]]]:
        return [list(self._read(name)) for name in self.test_names]

    def _extra_files(self) -> list[Path]:
        return [named_file(".", "extra_pairs", name) for name in self.extra_pairs]

    def _names(self, part: str) -> list[str]:
        stem = part if self.form == "raw" else f"tok/{part}.lc.norm.tok"
        return [f"{stem}.{language}" for language in (self.src_lang, self.tgt_lang)]

    def _read(self, part: str) -> Iterator[tuple[str, str]]:
        src, tgt = self._names(part)
        return read_pairs(self.path(src), self.path(tgt))


class Tatoeba(PublishedPairs):
    """Short everyday sentences of the Tatoeba project, English with French or German, in both directions (CC BY 2.0).

    There is no official split: pairs are split by a hash of the English sentence. A training pair whose other side also
    occurs among the held-out pairs is left out, so no held-out sentence of either language is seen in training. Each
    held-out source sentence is one test item; `references` gives all its translations.

    Args:
        src_lang: "eng", "fra" or "deu"; one side must be English.
        tgt_lang: the other side.
        val_fraction: share of the English sentences held out for validation.
        test_fraction: share of the English sentences held out for testing.
        split_seed: selects the sentences that are held out.
        tutorial_filter: keep only the pairs that the pytorch.org translation tutorial keeps: fewer than ten words
            per side (punctuation marks count), and an English side that begins with "I am", "he is" and the like.
        more_names: share of the training pairs about Tom, Mary or Boston that get another name, which they have on both
            sides; nearly all names in this data are these three. German only.
        swiss_spelling: train also on each German sentence with ß as it is written in Switzerland, with ss.
        **options: see `PairData`.
    """

    cleaning = ("invisible", "html")
    # Snapshots of 2019-04-07 (French) and 2018-05-13 (German); the project's own URL always has the newest one.
    remote: ClassVar[dict[str, RemoteFile]] = {
        "eng-fra.txt": RemoteFile(
            f"{_GITHUB}/modelexlab/data/adddaf33ac35572bcfeb421efec29435e7ea9332/fra-eng.zip",
            "0bb85dbaa1c896844649094d7eaf2e34bee34e84fe362b26ce7e8f2e12aae104",
            member="fra.txt",
        ),
        "eng-deu.txt": RemoteFile(
            f"{_GITHUB}/rioyshky/translation/de48b7027f7318d77010a6e08ed928c10748c23d/deu-eng.zip",
            "a79c90b3cd3102decffa49cc00fb6f20023974f2ae5c4782515bebe133fcc07b",
            member="deu.txt",
        ),
    }

    def __init__(
        self,
        src_lang: Literal["eng", "fra", "deu"] = "eng",
        tgt_lang: Literal["eng", "fra", "deu"] = "fra",
        val_fraction: float = 0.01,
        test_fraction: float = 0.01,
        split_seed: int = 0,
        tutorial_filter: bool = False,
        more_names: float = 0.0,
        swiss_spelling: bool = False,
        **options: Unpack[PairOptions],
    ) -> None:
        super().__init__(**options)
        if {src_lang, tgt_lang} not in ({"eng", "fra"}, {"eng", "deu"}):
            raise ValueError(
                f"src_lang and tgt_lang must be 'eng' and one of 'fra', 'deu', in either order; "
                f"got {src_lang!r} and {tgt_lang!r}"
            )
        check_fraction("val_fraction", val_fraction)
        check_fraction("test_fraction", test_fraction)
        if not 0 <= more_names <= 1:
            raise ValueError(f"more_names must be between 0 and 1; got {more_names}")
        if (more_names or swiss_spelling) and "deu" not in (src_lang, tgt_lang):
            raise ValueError(f"more_names and swiss_spelling are for German; got {src_lang!r} and {tgt_lang!r}")
        self.src_lang, self.tgt_lang = src_lang, tgt_lang
        self.val_fraction, self.test_fraction, self.split_seed = val_fraction, test_fraction, split_seed
        self.tutorial_filter, self.more_names, self.swiss_spelling = tutorial_filter, more_names, swiss_spelling
        foreign = tgt_lang if src_lang == "eng" else src_lang
        self.folder, self._name = f"tatoeba-eng-{foreign}", f"eng-{foreign}.txt"
        self._held_out: dict[Split, list[tuple[str, str]]] | None = None

    def files(self, split: Split) -> list[str]:
        return [self._name]

    def signature(self) -> list[object]:
        chosen: list[object] = []
        chosen += ["tutorial"] * self.tutorial_filter + ["swiss"] * self.swiss_spelling
        chosen += [self.more_names, names.MEN, names.WOMEN, names.CITIES] if self.more_names else []
        return [self.path(self._name), self.src_lang, self.val_fraction, self.test_fraction, self.split_seed, *chosen]

    def train_pairs(self) -> Iterator[tuple[str, str]]:
        foreign_held_out = {foreign for pairs in self._held_out_pairs().values() for _, foreign in pairs}
        for english, foreign in self._pairs():
            if self._split(english) == "train" and foreign not in foreign_held_out:
                if self.more_names:
                    renamed = names.renamed(english, foreign, self.more_names, self.split_seed)
                    english, foreign = (english, foreign) if renamed[1] in foreign_held_out else renamed
                yield self._directed(english, foreign)
                swiss = foreign.replace("ß", "ss")
                if self.swiss_spelling and swiss != foreign and swiss not in foreign_held_out:
                    yield self._directed(english, swiss)

    def val_pairs(self) -> list[tuple[str, str]]:
        return _first_of_each(self.references("val"))

    def test_sets(self) -> list[list[tuple[str, str]]]:
        return [_first_of_each(self.references("test"))]

    def references(self, split: Literal["val", "test"] = "test") -> dict[str, list[str]]:
        """All translations of each source sentence that is held out for `split`."""
        pairs = self._held_out_pairs()
        tested = {foreign for _, foreign in pairs["test"]} if split == "val" else set()
        translations: dict[str, list[str]] = {}
        for english, foreign in pairs[split]:
            if foreign not in tested:
                src, tgt = self._directed(english, foreign)
                translations.setdefault(src, []).append(tgt)
        return translations

    def _held_out_pairs(self) -> dict[Split, list[tuple[str, str]]]:
        if self._held_out is None:
            self._held_out = {"val": [], "test": []}
            for english, foreign in self._pairs():
                if (split := self._split(english)) != "train":
                    self._held_out[split].append((english, foreign))
        return self._held_out

    def _pairs(self) -> Iterator[tuple[str, str]]:
        pairs = read_pairs(self.path(self._name), None)
        return (pair for pair in pairs if _is_of_tutorial(*pair)) if self.tutorial_filter else pairs

    def _split(self, english: str) -> Split:
        drawn = draw(english, self.split_seed)
        if drawn < self.val_fraction:
            return "val"
        return "test" if drawn < self.val_fraction + self.test_fraction else "train"

    def _directed(self, english: str, foreign: str) -> tuple[str, str]:
        return (english, foreign) if self.src_lang == "eng" else (foreign, english)


_TUTORIAL = re.compile(r"(?:i(?:'| a)m|(?:he|she)(?:'| i)s|(?:you|we|they)(?:'| a)re) ", re.IGNORECASE)


def _is_of_tutorial(english: str, foreign: str) -> bool:
    if not _TUTORIAL.match(english.replace("’", "'")):
        return False
    return all(len(re.findall(r"\w+|[.!?]", side)) < 10 for side in (english, foreign))


def _first_of_each(translations: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(src, targets[0]) for src, targets in translations.items()]
