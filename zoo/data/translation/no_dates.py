"""Texts that are no dates, some of them nearly; the dates are in written_dates.py."""

import datetime
import random
from collections.abc import Callable

from zoo.data.translation.written_dates import (
    CASES,
    LETTERS,
    Day,
    month_name,
    named,
    nth_of,
    time_of_day,
    weekday_name,
    with_time,
    written,
    year_digits,
)
from zoo.text.dates import MONTHS, WEEKDAYS, in_words, ordinal, ordinal_in_words

_WORDS = (
    "the of and to in is it you that he was for on are with as his they at be this have from or one had by word but "
    "not what all were we when your can said there use an each which she do how their if will up other about out many "
    "then them these so some her would make like him into time has look two more write go see number no way could "
    "people my than first water been call who oil its now find long down day did get come made may part over new "
    "sound take only little work know place year live me back give most very after thing our just name good sentence "
    "man think say great where help through much before line right too mean old any same tell boy follow came want "
    "show also around form three small set put end does another well large must big even such because turn here why "
    "ask went men read need land different home us move try kind hand picture again change off play spell air away "
    "animal house point page letter mother answer found study still learn should world march april june august jan "
    "monday friday dog cat snow street train meeting room invoice order ticket apple banana hello please thanks music "
    "number version chapter flight price total phone second third fourth fifth twenty thirty hundred thousand nine "
    "morning evening week month years days hours birthday holiday party dinner doctor school Berlin Rome Paris Tokyo"
).split()
_NOT_MONTHS = [word for word in _WORDS if len(word) > 2 and word[:3].title() not in {name[:3] for name in MONTHS}]
_FIRST_NAMES = (
    "April May June August Anna Bob Carla David Emma Frank Grace Henry Ida Jack Karen Leo Maria Nina Oscar Paul Rosa "
    "Sam Tina Victor Wendy Marie John Juan Jean Julia Mark Martin Marcia Augustus Octavia Janet Jane Jan Dean Deborah"
).split()
_LAST_NAMES = (
    "Smith Jones Brown Weber Garcia Rossi Novak March Mayer Mayor Winter Summers Friday Day Monday King".split()
)
_UNITS = "day week fortnight month year weekend hour minute quarter decade century".split()
_HOLIDAYS = (
    "Christmas|Christmas Day|Christmas Eve|Easter|Easter Sunday|Easter Monday|New Year|New Year's Eve|Good Friday|"
    "Halloween|Thanksgiving|Pentecost|Independence Day|Labour Day|Ramadan|Diwali|Hanukkah|Boxing Day|Mother's Day"
).split("|")


def _any_date(rng: random.Random) -> datetime.date:
    return datetime.date(rng.randint(1900, 2099), rng.randint(1, 12), rng.randint(1, 28))


def _any_day(rng: random.Random) -> Day:
    date = _any_date(rng)
    return Day(date.day, MONTHS[date.month - 1], date.year, WEEKDAYS[date.weekday()], date.month)


def _relative(rng: random.Random) -> str:
    day = _any_day(rng)
    weekday = weekday_name(day, rng)
    count, time = rng.choice([in_words(rng.randint(1, 30)), rng.randint(1, 99)]), time_of_day(rng)
    unit, near = rng.choice(_UNITS), rng.choice(["next", "last", "this", "coming", "previous", "every"])
    near_day = rng.choice(
        ["today", "tomorrow", "yesterday", "now", "tonight", "the day after tomorrow", "soon", "later"]
    )
    return rng.choice(
        [
            f"{near} {weekday}", f"{near} {unit}", f"{near} {month_name(day, rng)}", f"{weekday} {near} {unit}",
            f"in {count} {unit}s", f"{count} {unit}s ago", f"{count} {unit}s from {near_day}", f"in a {unit}",
            f"a {unit} ago", f"a {unit} from {weekday}", f"{near_day}", f"{near_day} at {time}", f"{near_day} {time}",
            f"{weekday} at {time}", f"{weekday} {time}", f"on {weekday}", f"{near} {unit} on {weekday}",
            f"{rng.choice(['end', 'beginning', 'middle', 'first day'])} of {rng.choice(['the', near])} {unit}",
            f"the {unit} {rng.choice(['before', 'after'])} {near}", f"{near_day} {rng.choice(['morning', 'evening'])}",
            f"{near} {unit} on my birthday", f"the {nth_of(day.day, rng)} of {near} month",
        ]
    )  # fmt: skip


def _part(rng: random.Random) -> str:
    """A part of a date, which does not tell the date."""
    day, some = _any_day(rng), rng.randint(1, 31)
    month, nth = month_name(day, rng), rng.choice([nth_of(some, rng), ordinal_in_words(some)])
    separator, season = rng.choice("/-."), rng.choice(["spring", "summer", "autumn", "fall", "winter"])
    full = rng.choice([day.year, day.year, rng.randint(1000, 2999)])
    return rng.choice(
        [
            month, f"{month} {full}", f"{month}, {full}", f"{month} {year_digits(day.year, rng)}", f"{full} {month}",
            f"{some} {month}", f"{month} {some}", f"{nth} of {month}", f"the {nth} of {month}", f"{month} {nth}",
            f"{weekday_name(day, rng)}, {month} {some}", f"{weekday_name(day, rng)} {some} {month}", f"the {nth}", nth,
            f"{weekday_name(day, rng)} the {nth}", f"{some}{separator}{day.number}", f"{day.number}{separator}{some}",
            f"{day.number:02}{separator}{full}", f"{full}{separator}{day.number:02}", weekday_name(day, rng), f"{full}",
            f"'{day.year % 100:02}", f"{day.year // 10}0s", f"Q{rng.randint(1, 4)} {full}", f"{season} {full}",
            f"{rng.choice(['early', 'late', 'mid', 'in', 'the year'])} {full}", time_of_day(rng), f"{some}",
            f"{month} at {time_of_day(rng)}", f"{nth} century", f"{some} {month} {time_of_day(rng)}",
        ]
    )  # fmt: skip


def _impossible(rng: random.Random) -> str:
    """A day that its month does not have, or a month that the year does not have."""
    day = _any_day(rng)
    if rng.random() < 0.3:
        month, separator = rng.choice([0, *range(13, 100)]), rng.choice("-/.")
        return separator.join([f"{day.year}", f"{month:02}", f"{day.day:02}"])
    longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}.get(day.number, 31)
    beyond = rng.choice([0, longest + 1, 31, 32, rng.randint(32, 99)])
    return written(day._replace(day=beyond if not 1 <= beyond <= longest else 32), rng)


def _either_order(rng: random.Random) -> str:
    """Numbers that can be day and month, or month and day."""
    one, other = rng.sample(range(1, 13), 2)
    year = rng.choice([f"{rng.randint(1900, 2099)}", f"{rng.randint(0, 99):02}"])
    wide = rng.choice([1, 2])
    text = rng.choice("//- ").join([f"{one:0{wide}}", f"{other:0{wide}}", year])
    return with_time(text, rng) if rng.random() < 0.1 else text


def _two_dates(rng: random.Random) -> str:
    day = _any_day(rng)
    later, link = day.day + rng.randint(1, 9), rng.choice(["-", " - ", " to ", " and ", " or ", "/", " & "])
    month, other = month_name(day, rng), written(_any_day(rng), rng)
    return rng.choice(
        [
            f"{day.day}{link}{later} {month} {day.year}", f"{month} {day.day}{link}{later}, {day.year}",
            f"{ordinal(day.day)}{link}{ordinal(later)} {month} {day.year}",
            f"{written(day, rng)}{link.strip()} {other}", f"{written(day, rng)}{link}{other}",
            f"from {written(day, rng)} to {other}",
            f"between {day.day} and {later} {month} {day.year}", f"{day.year}{link}{day.year + rng.randint(1, 30)}",
            f"{month}{link}{rng.choice(MONTHS)} {day.year}",
        ]
    )  # fmt: skip


def _other_month(rng: random.Random) -> str:
    """Another word for the month, or a holiday."""
    day = _any_day(rng)
    if rng.random() < 0.3:
        return rng.choice(["{} {}", "{}, {}", "{} in {}", "{} of {}"]).format(rng.choice(_HOLIDAYS), day.year)
    word = rng.choice(_NOT_MONTHS) if rng.random() < 0.7 else "".join(rng.choices(LETTERS, k=rng.randint(3, 8)))
    return named(day._replace(month=word.title()), rng)


def _sentence(rng: random.Random) -> str:
    words: list[str] = [*rng.choices(_WORDS, k=rng.randint(1, 10))]
    if rng.random() < 0.3:
        words.insert(rng.randrange(len(words) + 1), f"{rng.choice([rng.randint(0, 100), rng.randint(1000, 2100)])}")
    if rng.random() < 0.15:
        words.insert(rng.randrange(len(words) + 1), rng.choice([*MONTHS, *_FIRST_NAMES]))
    if rng.random() < 0.12 and len(words) > 3:
        words.insert(rng.randrange(len(words) + 1), written(_any_day(rng), rng))
    text = " ".join(words) + rng.choice(["", "", ".", "?", "!"])
    return text[:1].upper() + text[1:] if rng.random() < 0.6 else text


def _name(rng: random.Random) -> str:
    first, last, word = rng.choice(_FIRST_NAMES), rng.choice(_LAST_NAMES), rng.choice(_WORDS)
    return rng.choice(
        [
            first, f"{first} {last}", f"{first} {rng.choice(_FIRST_NAMES)} {last}", f"{last}, {first}",
            f"Mr. {last}", f"{first} {last}, {rng.randint(1, 99)}", f"{word.title()} {rng.randint(1, 3000)}",
            f"{rng.randint(1, 3000)} {word.title()}", f"{rng.randint(1, 99)} {word} {rng.choice(_WORDS)}",
            f"{first.lower()}@{word}.com", f"www.{word}.org", f"https://{word}.net/{rng.randint(1, 999)}",
            f"{word}_{rng.randint(1, 99)}.txt", f"{first} ({rng.randint(1900, 2000)}-{rng.randint(2000, 2099)})",
        ]
    )  # fmt: skip


def _other_number(rng: random.Random) -> str:
    number = rng.randint(0, 10 ** rng.randint(1, 11))
    digits = [rng.randint(0, 10 ** rng.randint(1, 4)) for _ in range(5)]
    unit = rng.choice("km kg m % cm l h eur pounds euros miles degrees people".split())
    return rng.choice(
        [
            f"{number}", f"{number:,}", f"{number}.{digits[0]}", f"{number} {unit}", f"${number}",
            f"${digits[0]}.{digits[1]}", f"{digits[0] % 256}.{digits[1] % 256}.{digits[2] % 256}.{digits[3] % 256}",
            f"+{digits[0]} {digits[1]} {digits[2]}", f"v{digits[0] % 20}.{digits[1] % 20}", f"{digits[0]}-{digits[1]}",
            f"{digits[0] % 1000:03}-{digits[1] % 10000:04}",
            f"({digits[0] % 1000:03}) {digits[1] % 1000:03}-{digits[2] % 10000:04}", f"{digits[0]}/{digits[1]}",
            f"{digits[0]}-{digits[1]}-{digits[2]}-{digits[3]}", f"no. {number}", f"#{number}",
            f"{digits[0]}:{digits[1]}", f"{digits[0]} + {digits[1]} = {digits[2]}",
            f"{rng.randint(1900, 2099)}{rng.randint(13, 99)}{rng.randint(32, 99)}",
            f"{digits[0]} {digits[1]} {digits[2]} {digits[3]}",
            f"{rng.choice(_WORDS)} {digits[0]}{rng.choice(LETTERS)}",
        ]
    )  # fmt: skip


def _noise(rng: random.Random) -> str:
    signs = rng.choice([LETTERS, LETTERS + " ", "0123456789 -/.", "".join(map(chr, range(32, 127)))])
    return "".join(rng.choices(signs, k=rng.randint(1, 25))).strip() or "x"


_NO_DATES: tuple[Callable[[random.Random], str], ...] = (
    _relative, _part, _part, _impossible, _impossible, _either_order, _two_dates, _other_month, _sentence, _sentence,
    _name, _other_number, _noise,
)  # fmt: skip


def no_date(rng: random.Random) -> str:
    """A text that is no date."""
    text = rng.choice(_NO_DATES)(rng)
    return rng.choice(CASES)(text)
