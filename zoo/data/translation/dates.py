"""Generated data sets: nothing to download, and attention that is easy to see."""

import datetime
import random
from collections.abc import Callable, Iterator
from typing import Literal

from zoo.data.translation.base import PairData, PairOptionsWithoutVocabulary
from zoo.data.translation.no_dates import no_date
from zoo.data.translation.written_dates import written_date
from zoo.text.dates import MONTHS, NO_DATE, WEEKDAYS, ordinal
from zoo.utils.unpack import Unpack

_FIRST, _LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
_DAYS = (_LAST - _FIRST).days + 1
# Some days of 1000 to 1899 and of 2100 to 2999, counted from the first
_FAR = [*range(-328_716, 0, 37), *range(_DAYS, _DAYS + 328_716, 37)]
_NO_DATES = 0.3  # share of the training texts


# `month` and `weekday` are full or short names; ambiguous numeric forms are only in `_numeric`.
_FORMATS = (
    "{day} {month} {year}",
    "{day}-{month}-{year}",
    "{nth} {month} {year}",
    "{nth} of {month} {year}",
    "the {nth} of {month}, {year}",
    "{month} {day} {year}",
    "{month} {day}, {year}",
    "{month} {nth}, {year}",
    "{weekday} {day} {month} {year}",
    "{weekday}, {day} {month} {year}",
    "{weekday} {month} {day} {year}",
    "{weekday}, {month} {nth}, {year}",
    "{weekday} the {nth} of {month} {year}",
    "{year} {month} {day}",
    "{year}, {nth} of {month}",
)
_CASES: tuple[Callable[[str], str], ...] = (str, str, str.lower, str.upper)


def free_form(date: datetime.date, rng: random.Random) -> str:
    """A date in one of many written forms, none of which is ambiguous."""
    if rng.random() < 0.2:
        return _numeric(date, rng)
    month, weekday = MONTHS[date.month - 1], WEEKDAYS[date.weekday()]
    if rng.random() < 0.4:
        month, weekday = month[:3], weekday[:3]
    text = rng.choice(_FORMATS).format(
        day=date.day, nth=ordinal(date.day), month=month, year=date.year, weekday=weekday
    )
    return rng.choice(_CASES)(text)


def _numeric(date: datetime.date, rng: random.Random) -> str:
    day, month, year = date.day, date.month, date.year
    forms = [f"{year}/{month}/{day}", f"{year}.{month:02}.{day:02}", f"{year}{month:02}{day:02}"]
    if day > 12 or day == month:  # else 10/11/1979 could be either
        forms += [f"{day}/{month}/{year}", f"{month}/{day}/{year}", f"{day:02}.{month:02}.{year}"]
    return rng.choice(forms)


class Dates(PairData):
    """Free-form dates to ISO dates ("tuesday july 8 2008" -> "2008-07-08"), character by character.

    The classic toy task: attention visibly reads the day, the month and the year. Dates are from 1900 to 2099; those of
    training, validation and test are distinct.

    Args:
        forms: "few": plain forms, all of them dates. "many": dates as people write them, with two-digit years, times,
            numbers in words and typing slips (see zoo/data/translation/written_dates.py), some of 1000 to 1899 and 2100
            to 2999; and texts that are no dates, with the answer "no date": 30 % of the training pairs, and a second
            test set.
        train_size: number of training pairs.
        val_size: number of validation pairs, all with different dates.
        test_size: number of test pairs, all with different dates.
        split_seed: selects the dates and their written forms.
        tokenizer: see `PairData`.
        vocab_size: see `PairData`.
        shared_vocab: see `PairData`.
        **options: see `PairData`.
    """

    exact_only = True

    def __init__(
        self,
        forms: Literal["few", "many"] = "few",
        train_size: int = 50_000,
        val_size: int = 1_000,
        test_size: int = 1_000,
        split_seed: int = 0,
        tokenizer: Literal["bpe", "word", "char"] = "char",
        vocab_size: int = 100,
        shared_vocab: bool = False,
        **options: Unpack[PairOptionsWithoutVocabulary],
    ) -> None:
        super().__init__(tokenizer=tokenizer, vocab_size=vocab_size, shared_vocab=shared_vocab, **options)
        if min(train_size, val_size, test_size) < 1 or val_size + test_size > _DAYS // 2:
            raise ValueError(
                f"train_size, val_size and test_size must be at least 1, val_size + test_size at most {_DAYS // 2}; "
                f"got {train_size}, {val_size}, {test_size}"
            )
        if forms not in ("few", "many"):
            raise ValueError(f"forms must be one of 'few', 'many'; got {forms!r}")
        self.forms = forms
        self.test_names = ["test"] if forms == "few" else ["test", "no_dates"]
        self.sizes, self.split_seed = {"train": train_size, "val": val_size, "test": test_size}, split_seed

    def signature(self) -> list[object]:
        return ["Dates", self.sizes, self.split_seed, *[self.forms] * (self.forms != "few")]

    def train_pairs(self) -> Iterator[tuple[str, str]]:
        return self._pairs("train")

    def val_pairs(self) -> list[tuple[str, str]]:
        return list(self._pairs("val"))

    def test_sets(self) -> list[list[tuple[str, str]]]:
        dates = list(self._pairs("test"))
        if self.forms == "few":
            return [dates]
        rng = random.Random(f"{self.split_seed} test no dates")
        return [dates, [(no_date(rng), NO_DATE) for _ in dates]]

    def unanswerable(self) -> list[str]:
        """As many texts that are no dates as there are validation pairs."""
        rng = random.Random(f"{self.split_seed} no dates")
        return [no_date(rng) for _ in range(self.sizes["val"])]

    def _pairs(self, split: str) -> Iterator[tuple[str, str]]:
        days = list(range(_DAYS)) + _FAR * (self.forms == "many")
        random.Random(f"{self.split_seed} dates").shuffle(days)
        val_end = self.sizes["val"]
        test_end = val_end + self.sizes["test"]
        rng = random.Random(f"{self.split_seed} {split}")
        if split == "train":
            chosen = rng.choices(days[test_end:], k=self.sizes["train"])
        else:
            chosen = days[:val_end] if split == "val" else days[val_end:test_end]
        for day in chosen:
            date = _FIRST + datetime.timedelta(days=day)
            if self.forms == "few":
                yield free_form(date, rng), date.isoformat()
            elif split == "train" and rng.random() < _NO_DATES:
                yield no_date(rng), NO_DATE
            else:
                yield written_date(date, rng), date.isoformat()
