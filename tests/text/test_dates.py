"""Dates in words, and whether a text tells the day and the year of a date."""

import datetime

import pytest

from zoo.text.dates import in_words, ordinal, ordinal_in_words, tells, year_in_words


def test_ordinals():
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 30, 31)] == (
        "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 23rd 30th 31st".split()
    )
    assert [ordinal_in_words(n) for n in (1, 2, 3, 4, 5, 8, 9, 12, 15, 20, 25, 30, 31)] == (
        "first second third fourth fifth eighth ninth twelfth fifteenth twentieth twenty-fifth thirtieth thirty-first"
    ).split()


def test_numbers_in_words():
    assert [in_words(n) for n in (0, 7, 13, 20, 45, 99)] == "zero seven thirteen twenty forty-five ninety-nine".split()
    assert len({in_words(n) for n in range(100)}) == 100


@pytest.mark.parametrize(
    "year, ways",
    [
        (1984, ["nineteen eighty-four"]),
        (1900, ["nineteen hundred"]),
        (1906, ["nineteen oh six"]),
        (2000, ["two thousand"]),
        (2009, ["two thousand and nine", "two thousand nine"]),
        (2021, ["two thousand and twenty-one", "two thousand twenty-one", "twenty twenty-one"]),
        (1066, ["one thousand and sixty-six", "one thousand sixty-six", "ten sixty-six"]),
        (2100, ["twenty-one hundred"]),
    ],
)
def test_years_in_words(year, ways):
    found = year_in_words(year)
    assert set(ways) <= set(found) and len(found) <= len(ways) + 1


def test_each_year_has_words_of_its_own():
    said = [way for year in range(1000, 3000) for way in year_in_words(year)]
    assert len(said) == len(set(said)) and all(year_in_words(year) for year in range(1000, 3000))


@pytest.mark.parametrize(
    "text, is_told",
    [
        ("25 December 2009", True),
        ("Dec 25, '09", True),
        ("25dec09", True),
        ("25/12/2009 10:30", True),
        ("the twenty fifth of december 2009", True),
        ("Twenty-Fifth of December Two Thousand and Nine", True),
        ("20091225", True),
        ("25 December", False),
        ("December 2009", False),
        ("25 December 1909", False),
        ("5 December 2009", False),
        ("9 December 25", False),
        ("250 December 2009", False),
        ("fifth of December 2009", False),
        ("25 Decmber 2009", True),
        ("25th Decemberr 2009", True),
        ("25thdceember'09", True),
        ("25 Dezember 2009", True),
        ("25 Mai 2009", False),
        ("25 November 2009", False),
        ("25 12 09", True),
        ("25 2009", False),
        ("25 December 2009 BC", False),
        ("the 25th Sunday of December 2009", False),
        ("Dec 25th, Friday in 2009", True),
        ("20091225 bce", False),
        ("25 December 2009, Victoria, B.C.", True),
        ("25ndec 2009", True),
        ("25th month of December 2009", True),
        ("hello", False),
        ("", False),
    ],
)
def test_what_a_text_tells(text, is_told):
    assert tells(text, datetime.date(2009, 12, 25)) is is_told


def test_a_number_is_day_or_year_but_not_both():
    fifth = datetime.date(2005, 5, 5)
    assert tells("05.05.05", fifth) and tells("5 May 05", fifth) and not tells("May 05", fifth)


def test_the_year_takes_no_number_of_the_day():
    assert tells("the 15th of Jan two thousand fifteen", datetime.date(2015, 1, 15))
    assert tells("15 Jan 15", datetime.date(2015, 1, 15)) and not tells("Jan 15", datetime.date(2015, 1, 15))
    assert tells("05/05/2005", datetime.date(2005, 5, 5)) and not tells("05/06/2005", datetime.date(2005, 5, 5))


def test_may_has_no_slips():
    assert tells("3 may 1995", datetime.date(1995, 5, 3)) and not tells("3. Mai 1995", datetime.date(1995, 5, 3))
    assert not tells("3. Mai 1995", datetime.date(1995, 3, 3)), "the month that a model took it for"


def test_two_digits_are_the_years_around_now():
    assert tells("1.1.69", datetime.date(1969, 1, 1)) and tells("1.1.68", datetime.date(2068, 1, 1))
    assert not tells("1.1.68", datetime.date(1968, 1, 1)) and not tells("1.1.69", datetime.date(2069, 1, 1))


@pytest.mark.parametrize(
    "text, right, wrong",
    [
        ("the twenty-first of july 2008", (2008, 7, 21), (2008, 7, 1)),
        ("July the twenty sixth, 1999", (1999, 7, 26), (1999, 7, 6)),
        ("thirty-first of may nineteen sixteen", (1916, 5, 31), (1916, 5, 1)),
        ("first of may two thousand and nine", (2009, 5, 1), (2000, 5, 1)),
        ("first of may two thousand nine", (2009, 5, 1), (2000, 5, 1)),
        ("first of may two thousand sixteen", (2016, 5, 1), (2006, 5, 1)),
        ("first of may twenty twenty-five", (2025, 5, 1), (2020, 5, 1)),
        ("1 may nineteen sixty-six", (1966, 5, 1), (1960, 5, 1)),
        ("Nineteen twenty, fifth of May", (1920, 5, 5), (1925, 5, 5)),
        ("may the fifth, nineteen , twenty", (1920, 5, 5), (1925, 5, 5)),
        ("twenty twenty-first of May 2009", (2009, 5, 21), (2009, 5, 1)),
    ],
)
def test_a_number_in_words_is_no_part_of_another(text, right, wrong):
    assert tells(text, datetime.date(*right)) and not tells(text, datetime.date(*wrong))


def test_every_way_to_say_a_date_tells_it_alone():
    """And the twentieth, whose word is no end of another day, after a year in words."""
    for date in (datetime.date(2000, 1, 1) + datetime.timedelta(days=n) for n in range(0, 20_000, 37)):
        for year in year_in_words(date.year):
            text = f"{ordinal_in_words(date.day)} of may {year}"
            told = [other for other in range(1, 32) if tells(text, date.replace(month=5, day=other))]
            assert told == [date.day], text
    assert tells("twenty twenty twentieth of may", datetime.date(2020, 5, 20))
