"""Dates in words: names of months, ordinals, years, and whether a text tells the day and the year of a date."""

import datetime
import re

NO_DATE = "no date"  # what a model of dates answers to a text that is none
TWO_DIGITS = range(1969, 2069)  # the years that two digits stand for, as in POSIX

MONTHS = "January February March April May June July August September October November December".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_IRREGULAR = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth"}
_IRREGULAR |= {"twelve": "twelfth", "twenty": "twentieth", "thirty": "thirtieth"}
_NOT_AFTER_TENS = "".join(f"(?<!{tens})(?<!{tens} )" for tens in _TENS)  # "twenty first" is not the first
_NOT_BEFORE_MORE = rf"(?! ?(?:and |oh )?(?:{'|'.join(_SMALL + _TENS)})\b)"  # "two thousand and nine" is not 2000


def ordinal(day: int) -> str:
    """1 -> "1st"."""
    suffix = "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{suffix}"


def in_words(number: int) -> str:
    """25 -> "twenty-five", for numbers below 100."""
    if number < 20:
        return _SMALL[number]
    tens, ones = _TENS[number // 10 - 2], number % 10
    return f"{tens}-{_SMALL[ones]}" if ones else tens


def ordinal_in_words(day: int) -> str:
    """25 -> "twenty-fifth", for the days of a month."""
    tens, hyphen, last = in_words(day).rpartition("-")
    return f"{tens}{hyphen}{_IRREGULAR.get(last, f'{last}th')}"


def year_in_words(year: int) -> list[str]:
    """The ways to say a year from 1000 to 2999: 1906 -> "nineteen oh six"; 2009 also "two thousand and nine"."""
    hundreds, ones = divmod(year, 100)
    found = []
    if year % 1000 < 100:
        thousand = f"{in_words(year // 1000)} thousand"
        found += [f"{thousand} and {in_words(ones)}", f"{thousand} {in_words(ones)}"] if ones else [thousand]
    if ones >= 10:
        found.append(f"{in_words(hundreds)} {in_words(ones)}")
    elif hundreds % 10 or ones:
        found.append(f"{in_words(hundreds)} {f'oh {in_words(ones)}' if ones else 'hundred'}")
    return found


def tells(text: str, date: datetime.date) -> bool:
    """Whether day and year of a date are in a text, as different numbers, in words, or as eight digits."""
    numbers = re.findall(r"\d+", text)
    if date.strftime("%Y%m%d") in numbers:
        return True
    words = re.sub("[^a-z,]+", " ", text.lower())
    years = [f"{date.year}"] + [f"{date.year % 100:02}"] * (date.year in TWO_DIGITS)
    said_day = _in_text(ordinal_in_words(date.day))
    said_years = [_in_text(way) + r"\b" for way in year_in_words(date.year)]
    if date.day < 10:
        said_day = _NOT_AFTER_TENS + said_day
    if date.year % 10 == 0:
        said_years = [way + _NOT_BEFORE_MORE for way in said_years]
    for digits, said in (([f"{date.day}", f"{date.day:02}"], [said_day]), (years, said_years)):
        if number := next((number for number in numbers if number in digits), None):
            numbers.remove(number)
        elif not any(re.search(way, words) for way in said):
            return False
    return True


def _in_text(number: str) -> str:
    """A regular expression for a number in words, between which there may be commas."""
    return re.sub("[ -]", "[ ,]+", number)
