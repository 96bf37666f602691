"""Dates in words: names of months, ordinals, years, and whether a text tells a date."""

import datetime
import re
from collections.abc import Sequence

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

_NTH = "|".join([*_IRREGULAR.values(), *(f"{word}th" for word in _SMALL)])
_DAY = "|".join([day.lower() for day in WEEKDAYS] + "mon tue tues wed weds thu thur thurs fri sat sun".split())
_COUNTED_WEEKDAY = re.compile(rf"(?a)(?:[0-9](?:st|nd|rd|th)|\b(?:{_NTH})) ?(?:{_DAY})\.? (?:of|in)\b")
_OTHER_ERA = re.compile(r"(?a)[0-9] ?b\.? ?c(?:\.? ?e)?\b")


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
    """Whether day, month and year of a date are in a text.

    As different numbers, in words, or as eight digits; a month may be shortened, or have a wrong letter. What is not a
    date of our era tells none, nor does a counted weekday, as in "2nd Sunday of May".
    """
    text = text.lower()
    if _OTHER_ERA.search(text) or _COUNTED_WEEKDAY.search(text):
        return False
    numbers = re.findall(r"\d+", text)
    if date.strftime("%Y%m%d") in numbers:
        return True
    apart = re.sub(r"(\d)(?:st|nd|rd|th)", r"\1 ", text)
    words = re.sub("[^a-z,]+", " ", text)
    said_day = _in_text(ordinal_in_words(date.day))
    said_years = [_in_text(way) + r"\b" for way in year_in_words(date.year)]
    if date.day < 10:
        said_day = _NOT_AFTER_TENS + said_day
    if date.year % 10 == 0:
        said_years = [way + _NOT_BEFORE_MORE for way in said_years]

    def takes(*digits: str) -> bool:
        """Whether one of these is among the numbers that tell nothing else yet."""
        found = next((number for number in numbers if number in digits), None)
        if found is not None:
            numbers.remove(found)
        return found is not None

    def says(ways: Sequence[str]) -> bool:
        return any(re.search(way, words) for way in ways)

    short = f"{date.year % 100:02}" if date.year in TWO_DIGITS else ""
    day, month = ((f"{number}", f"{number:02}") for number in (date.day, date.month))
    return (
        (takes(f"{date.year}") or says(said_years) or takes(short))
        and (takes(*day) or says([said_day]))
        and (takes(*month) or _names(f"{text} {apart}", MONTHS[date.month - 1].lower()))
    )


def _names(text: str, month: str) -> bool:
    """Whether a text in lower case has the beginning of a month, or its name with a wrong letter."""
    return month[:3] in text or any(_is_slip(word, month) for word in re.findall("[a-z]+", text))


def _is_slip(word: str, name: str) -> bool:
    """Whether one letter of a name (but of May) is missing, wrong or too many, or two have changed places."""
    if len(name) < 4 or abs(len(word) - len(name)) > 1:
        return False
    same = next((n for n, (one, other) in enumerate(zip(word, name)) if one != other), min(len(word), len(name)))
    rest, wanted = word[same:], name[same:]
    return rest[1:] == wanted[1:] or rest[1:] == wanted or rest == wanted[1:] or _swapped(rest) == wanted


def _swapped(text: str) -> str:
    return text[1:2] + text[:1] + text[2:]


def _in_text(number: str) -> str:
    """A regular expression for a number in words, between which there may be commas."""
    return re.sub("[ -]", "[ ,]+", number)
