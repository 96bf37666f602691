"""Dates as people write them; texts that are no dates are in no_dates.py.

Day, month and year make a date; a weekday, a time and a few words next to it change nothing, and typing slips little.
Two digits of a year are the last, and stand for 1969 to 2068. With dots the day is first; other numbers that can be day
and month in either order tell no date. Nor do relative dates, parts of dates, days that are not in the calendar, two
dates, holidays, sentences and other numbers.
"""

import datetime
import random
from collections.abc import Callable
from typing import NamedTuple

from zoo.text.dates import MONTHS, TWO_DIGITS, WEEKDAYS, ordinal, ordinal_in_words, year_in_words

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Day(NamedTuple):
    """A day to write, which need not be in the calendar.

    Attributes:
        day: of the month.
        month: the word for it.
        year: with all its digits.
        weekday: the word for it.
        number: of the month.
    """

    day: int
    month: str
    year: int
    weekday: str
    number: int


def written_date(date: datetime.date, rng: random.Random) -> str:
    """A date in one of many written forms, none of which is ambiguous."""
    weekday = rng.choice(WEEKDAYS) if rng.random() < 0.05 else WEEKDAYS[date.weekday()]
    return written(Day(date.day, MONTHS[date.month - 1], date.year, weekday, date.month), rng)


_NAMED = (  # with a name for the month
    "{day} {month} {year}|{day} {month}, {year}|{day}, {month}, {year}|{day},{month},{year}|{day}. {month} {year}|"
    "{day}-{month}-{year}|{day}/{month}/{year}|{day}.{month}.{year}|{day}{month}{year}|{day}{month} {year}|"
    "{day} {month}{year}|{day} of {month} {year}|{day} {month} in {year}|"
    "{nth} {month} {year}|{nth} {month}, {year}|{nth}{month}{year}|{nth} of {month} {year}|{nth} of {month}, {year}|"
    "{nth} of {month} in {year}|{nth} of {month}, in {year}|{nth} day of {month} {year}|{nth} day of {month}, {year}|"
    "{nth} of the month of {month} {year}|the {nth} of {month} {year}|the {nth} of {month}, {year}|"
    "the {nth} {month} {year}|the {nth} {month}, {year}|the {nth} day of {month}, {year}|"
    "{month} {day} {year}|{month} {day}, {year}|{month} {day},{year}|{month} {day} , {year}|{month}, {day}, {year}|"
    "{month}{day} {year}|{month}{day}, {year}|{month}{day},{year}|{month}-{day}-{year}|{month}/{day}/{year}|"
    "{month} {day} - {year}|{month} {day} of {year}|{month} {day} in {year}|{month} {nth} {year}|"
    "{month} {nth}, {year}|{month} {nth},{year}|{month} {nth} of {year}|{month} {nth}, in {year}|"
    "{month} the {nth} {year}|{month} the {nth}, {year}|"
    "{full} {month} {day}|{full}, {month} {day}|{full}-{month}-{day}|{full}/{month}/{day}|{full}, {nth} of {month}|"
    "{full} {day} {month}|{full} {month} {nth}|{weekday} {month} {day} {time} {full}"
).split("|")
_SPOKEN = (  # also with words for numbers
    "{nth} of {month} {year}|the {nth} of {month} {year}|the {nth} of {month}, {year}|{nth} of {month}, {year}|"
    "{nth} {month} {year}|{month} {nth} {year}|{month} {nth}, {year}|{month} the {nth}, {year}|"
    "the {nth} day of {month}, {year}"
).split("|")
_BEFORE = "on |date: |dated |born |born on |until |till |since |from |by |due |before |after |as of |London, |Paris, "
_AFTER = ".|!|,|;| AD| in the morning| in the evening|, noon| at noon| at night|, midnight| approx."
_PAIRS = ("()", '""', "''", "[]")


def written(day: Day, rng: random.Random) -> str:
    roll = rng.random()
    text = _numeric(day, rng) if roll < 0.3 else _spoken(day, rng) if roll < 0.4 else named(day, rng)
    if rng.random() < 0.2:
        text = _with_weekday(text, weekday_name(day, rng), rng)
    if rng.random() < 0.12 and ":" not in text:
        text = with_time(text, rng)
    if rng.random() < 0.1:
        text = rng.choice(_BEFORE.split("|")) + text
    if rng.random() < 0.1:
        text += rng.choice(_AFTER.split("|"))
    if rng.random() < 0.03:
        text = text.join(rng.choice(_PAIRS))
    if rng.random() < 0.08:
        text = _spaced(text, rng)
    return rng.choice(CASES)(text)


def named(day: Day, rng: random.Random) -> str:
    return rng.choice(_NAMED).format(
        day=f"{day.day:02}" if rng.random() < 0.2 else day.day,
        nth=nth_of(day.day, rng),
        month=month_name(day, rng),
        year=year_digits(day.year, rng),
        full=day.year,
        weekday=day.weekday[:3],
        time=time_of_day(rng),
    )


def _spoken(day: Day, rng: random.Random) -> str:
    nth = ordinal_in_words(day.day) if rng.random() < 0.8 and day.day in range(1, 100) else nth_of(day.day, rng)
    year = rng.choice(year_in_words(day.year)) if rng.random() < 0.5 else f"{day.year}"
    text = rng.choice(_SPOKEN).format(nth=nth, month=month_name(day, rng), year=year)
    return text.replace("-", " ") if rng.random() < 0.4 else text


def _numeric(day: Day, rng: random.Random) -> str:
    """The month as a number."""
    separator, short = rng.choice("///--.. "), f"{day.year % 100:02}"
    wide = 2 if rng.random() < 0.5 else 1
    one, other = f"{day.day:0{wide}}", f"{day.number:0{wide}}"
    if rng.random() < 0.35:
        year_first = [f"{day.year}{day.number:02}{day.day:02}", f"{day.year}-{day.number:02}-{day.day:02}"]
        if rng.random() < 0.2:
            return f"{year_first[1]}T{_clock(rng)}{rng.choice(['', 'Z', '+01:00', '.000Z', '-05:00'])}"
        return rng.choice([*year_first, rng.choice([separator, "_"]).join([f"{day.year}", other, one])])
    orders = [[one, other]] if separator == "." or not _can_be_month(day.day) or day.day == day.number else []
    if separator != "." and not _can_be_month(day.day):
        orders.append([other, one])
    if not orders:
        return named(day, rng)
    year = short if day.year in TWO_DIGITS and rng.random() < 0.35 else f"{day.year}"
    spaced = {".": ". ", "/": " / ", "-": " - "}.get(separator, " ")
    return (spaced if rng.random() < 0.1 else separator).join([*rng.choice(orders), year])


def _can_be_month(number: int) -> bool:
    return 1 <= number <= 12


def nth_of(day: int, rng: random.Random) -> str:
    if rng.random() < 0.06:
        return f"{day}" + rng.choice(["th", " th", f"-{ordinal(day)[-2:]}", "st", "nd", "rd", "th.", "."])
    return ordinal(day)


def year_digits(year: int, rng: random.Random) -> str:
    if year not in TWO_DIGITS or rng.random() < 0.6:
        return f"AD {year}" if rng.random() < 0.01 else f"{year}"
    return rng.choice(["'", "'", "", "", "’"]) + f"{year % 100:02}"


def month_name(day: Day, rng: random.Random) -> str:
    name = day.month
    if rng.random() < 0.4:
        short = "Sept" if name == "September" and rng.random() < 0.6 else name[:3]
        return short + "." * (rng.random() < 0.3)
    return _slip(name, rng) if rng.random() < 0.15 else name


def weekday_name(day: Day, rng: random.Random) -> str:
    name = day.weekday
    if rng.random() < 0.5:
        longer = {"Tuesday": ["Tues"], "Wednesday": ["Weds"], "Thursday": ["Thurs", "Thur"]}.get(name, [name[:3]])
        return rng.choice([name[:3], *longer]) + "." * (rng.random() < 0.2)
    return _slip(name, rng) if rng.random() < 0.15 else name


def _with_weekday(text: str, weekday: str, rng: random.Random) -> str:
    if rng.random() < 0.2:
        return text + rng.choice([" {}", ", {}", " ({})", ", a {}"]).format(weekday)
    return rng.choice(["{} ", "{} ", "{}, ", "{}, ", "({}) ", "{} the "]).format(weekday) + text


def with_time(text: str, rng: random.Random) -> str:
    if rng.random() < 0.3:
        return time_of_day(rng) + rng.choice([", ", " ", " on "]) + text
    return text + rng.choice([" ", " ", ", ", " at ", " - "]) + time_of_day(rng)


def time_of_day(rng: random.Random) -> str:
    forms = [_clock(rng), f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}"]
    forms += [f"{rng.randint(1, 12)}{rng.choice(['', f':{rng.randint(0, 59):02}'])}{rng.choice(['', ' '])}{half}"
              for half in ("am", "pm", "AM", "PM", "p.m.")]  # fmt: skip
    forms.append(f"{_clock(rng)} {rng.choice(['GMT', 'UTC', '+0000', '+0200', '-0500', 'PM', 'AM', 'CET'])}")
    return rng.choice(forms)


def _clock(rng: random.Random) -> str:
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}" + rng.choice(["", f":{rng.randint(0, 59):02}"])


def _slip(word: str, rng: random.Random) -> str:
    """A word with a letter too many; a long one also with a letter that is missing, wrong, or in a wrong place."""
    n = rng.randrange(1, len(word) - 1)
    before, letter, after = word[:n], word[n], word[n + 1 :]
    doubled = before + letter + letter + after
    if len(word) < 5:
        return doubled if len(word) > 3 else word
    swapped = before + after[0] + letter + after[1:]
    return rng.choice([doubled, before + after, before + after, swapped, swapped, before + rng.choice(LETTERS) + after])


def _spaced(text: str, rng: random.Random) -> str:
    """Spaces and commas where they do not belong, or missing, but none between two numbers."""
    found = [n for n in range(1, len(text) - 1) if text[n] in " ," and not (text[n - 1] + text[n + 1]).isdigit()]
    if not found:
        return text
    n = rng.choice(found)
    return text[:n] + rng.choice(["" if text[n] == " " else " ", " ,", ", ", text[n] * 2]) + text[n + 1 :]


def _odd_capital(text: str) -> str:
    """With its second letter as the only capital, such as "dEcember"."""
    return " ".join(word[:1].lower() + word[1:2].upper() + word[2:] for word in text.split(" "))


CASES: tuple[Callable[[str], str], ...] = (*[str] * 10, *[str.lower] * 6, *[str.upper] * 3, str.title, _odd_capital)
