"""Other names in the place of Tom, Mary and Boston."""

import re

import pytest

from zoo.data.translation.names import CITIES, MEN, WOMEN, renamed


@pytest.mark.parametrize(
    "english, german, allowed",
    [
        ("My name is {Tom}.", "Ich heiße {Tom}.", MEN + WOMEN),
        ("{Tom} lost his key.", "{Tom} hat den Schlüssel verloren.", MEN),
        ("{Tom}'s here.", "{Tom} ist mit seiner Tochter hier.", MEN),
        ("{Mary} is here.", "{Maria} ist mit ihrer Mutter hier.", WOMEN),
        ("I saw {Mary}.", "Ich habe {Mary} gesehen.", MEN + WOMEN),
    ],
)
def test_a_name_is_the_same_on_both_sides_and_fits(english, german, allowed):
    around = [re.escape(part) for side in (english, german) for part in re.split(r"{\w+}", side)]
    sentences = re.compile("{}(.+){}\t{}(.+){}".format(*around))
    plain = [re.sub(r"[{}]", "", side) for side in (english, german)]
    found = {sentences.fullmatch("\t".join(renamed(*plain, share=1.0, seed=seed))).groups() for seed in range(400)}
    assert all(of_english == of_german for of_english, of_german in found)
    assert {name for name, _ in found} <= set(allowed) and len(found) > len(allowed) / 2


def test_cities_have_their_name_in_each_language():
    found = {renamed("I live in Boston.", "Ich wohne in Boston.", 1.0, seed) for seed in range(400)}
    assert found == {(f"I live in {english}.", f"Ich wohne in {german}.") for german, english in CITIES}


@pytest.mark.parametrize(
    "english, german",
    [
        ("Tom met Mary.", "Tom traf Maria."),  # two names
        ("Tom's car is red.", "Toms Auto ist rot."),  # not the same word
        ("Tom is in Boston.", "Er ist in Boston."),  # not on both sides
        ("Tomorrow it rains.", "Morgen regnet es."),
        ("Mary, please!", "Tom, bitte!"),
    ],
)
def test_other_pairs_stay(english, german):
    assert {renamed(english, german, 1.0, seed) for seed in range(20)} == {(english, german)}


def test_the_share():
    pairs = [(f"Tom has {n} cats.", f"Tom hat {n} Katzen.") for n in range(400)]
    assert [renamed(*pair, share=0.0, seed=0) for pair in pairs] == pairs
    kept = sum(renamed(*pair, share=0.25, seed=0) == pair for pair in pairs)
    assert 270 < kept < 330
