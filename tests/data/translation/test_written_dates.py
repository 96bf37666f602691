"""Dates as people write them, and texts that are no dates: what the generator promises, and the list written by hand."""

import datetime
import random
import re

import pytest
from written_dates import halves, written_dates

from zoo.data import Dates
from zoo.data.translation.no_dates import no_date
from zoo.data.translation.written_dates import written_date
from zoo.text.dates import NO_DATE, TWO_DIGITS, tells

_NUMBERS = r"(\d+)( ?[-./_ ] ?)(\d+)\2(\d+)"  # three, with the same between them


def _read(text):
    """The date that three numbers tell by the rules of the list; None if they tell none."""
    numbers = re.fullmatch(_NUMBERS, text)
    if not numbers:
        return None
    first, separator, second, third = numbers.groups()
    one, other = int(first), int(second)
    if len(first) == 4:
        return datetime.date(one, other, int(third))
    year = int(third) if len(third) == 4 else next(year for year in TWO_DIGITS if year % 100 == int(third))
    if separator.strip() == "." or one > 12 or one == other:
        return datetime.date(year, other, one)
    return datetime.date(year, one, other) if other > 12 else None


def _is_told(text):
    """Whether three numbers are a date: not if day and month can be in either order, or are not in the calendar."""
    try:
        return _read(text) is not None
    except ValueError:
        return False


def test_numbers_are_written_by_the_rules():
    rng, read = random.Random(0), 0
    for _ in range(4_000):
        date = datetime.date(1000, 1, 1) + datetime.timedelta(rng.randrange(730_000))
        text = written_date(date, rng)
        if re.fullmatch(_NUMBERS, text):
            assert _read(text) == date, text
            read += 1
    assert read > 300


def test_nearly_every_text_tells_day_and_year():
    """Only a space that is lost within a number in words hides it."""
    rng = random.Random(1)
    dates = [datetime.date(1900, 1, 1) + datetime.timedelta(rng.randrange(73_000)) for _ in range(2_000)]
    assert sum(not tells(written_date(date, rng), date) for date in dates) <= 4


def test_the_forms_are_many():
    rng = random.Random(2)
    christmas = datetime.date(2009, 12, 25)
    forms = {written_date(christmas, rng) for _ in range(12_000)}
    assert {"25/12/2009", "12/25/09", "25.12.09", "20091225", "2009-12-25", "25DEC2009", "december 25 2009"} <= forms
    assert {"Dec 25, 2009", "December 25th, 2009", "twenty-fifth of December 2009"} <= forms and len(forms) > 6_000
    assert not {"10/11/1979", "11/10/1979", "10-11-79"} & {
        written_date(datetime.date(1979, 11, 10), rng) for _ in range(2_000)
    }


def test_no_dates_are_of_many_kinds_and_tell_no_date():
    rng = random.Random(3)
    texts = [no_date(rng) for _ in range(8_000)]
    assert {"tomorrow", "May"} <= set(texts) and len(set(texts)) > 6_000
    numbers = [text for text in texts if re.fullmatch(r"(\d{1,2})([/-])\d{1,2}\2(\d{2}|\d{4})", text)]
    assert len(numbers) > 300
    assert not [text for text in numbers if _is_told(text)]


def test_data_of_many_forms():
    sizes = {"train_size": 3_000, "val_size": 30, "test_size": 40}
    data = Dates(forms="many", **sizes)
    train, val, (test, no_dates) = list(data.train_pairs()), data.val_pairs(), data.test_sets()
    assert data.test_names == ["test", "no_dates"] and (len(val), len(test), len(no_dates)) == (30, 40, 40)
    answers = [answer for _, answer in train]
    assert 0.27 < answers.count(NO_DATE) / len(answers) < 0.33
    assert all(answer == NO_DATE for _, answer in no_dates) and NO_DATE not in {answer for _, answer in [*val, *test]}
    days = [{answer for _, answer in pairs if answer != NO_DATE} for pairs in (train, val, test)]
    assert not days[0] & days[1] and not days[0] & days[2] and not days[1] & days[2]
    assert 0.1 < sum(not "1900" <= day < "2100" for day in days[0]) / len(days[0]) < 0.3
    assert list(Dates(forms="many", **sizes).train_pairs()) == train
    texts = data.unanswerable()
    assert len(texts) == 30 and texts == data.unanswerable() and not set(texts) & {text for text, _ in no_dates}
    assert data.signature() != Dates(**sizes).signature() == ["Dates", data.sizes, 0]


def test_the_forms_have_names():
    with pytest.raises(ValueError, match="forms must be one of 'few', 'many'; got 'wide'"):
        Dates(forms="wide")


def test_the_list_is_consistent():
    """Its answers are dates that the texts tell, or none; what three numbers tell follows its own rules."""
    rows = written_dates()
    assert len(rows) == len({text for text, _ in rows}) >= 200
    assert sorted(rows) == sorted([*halves()["development"], *halves()["test"]])
    read = 0
    for text, answer in rows:
        if answer:
            assert tells(text, datetime.date.fromisoformat(answer)), text
        if re.fullmatch(_NUMBERS, text) and answer:
            assert _read(text) == datetime.date.fromisoformat(answer), text
            read += 1
    assert read > 20
