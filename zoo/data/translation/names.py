"""Other names in the place of Tom, Mary and Boston, which nearly all names in Tatoeba's sentences are.

A model that has seen no other name cannot translate "Ich heiße Anna.". A pair gets another name if it has one of the
three exactly once, as the same word on both sides; so the translation stays right.
"""

import re

from zoo.data.common.files import draw

MEN = """
Adam Alexander Ali Andreas Ben Bernd Carlos Christian Daniel David Dieter Erik Felix Frank Georg Hans Jakob Jan
Jonas Julian Karl Klaus Leon Lukas Markus Martin Max Michael Mohammed Nico Oliver Oskar Paul Peter Robert Sebastian
Simon Stefan Thomas Tim Uwe Wolfgang
""".split()
WOMEN = """
Alice Amina Angela Anja Anna Barbara Birgit Carla Charlotte Christina Clara Elena Elisabeth Emma Eva Fatima
Franziska Hannah Helga Ingrid Jana Johanna Julia Karin Katharina Laura Lena Lisa Lucia Maja Marie Martina Monika
Nina Olga Paula Petra Sabine Sarah Sophie Susanne Ursula
""".split()
_CITIES = """
Amsterdam Berlin Bern Bonn Bremen Dortmund Dresden Frankfurt Graz Hamburg Heidelberg Leipzig London Madrid Mannheim
Oslo Paris Potsdam Salzburg Stuttgart
""".split()
CITIES = [(name, name) for name in _CITIES]  # in German and in English
CITIES += [("Köln", "Cologne"), ("München", "Munich"), ("Rom", "Rome"), ("Wien", "Vienna"), ("Zürich", "Zurich")]
_OF_ONE_SEX = """
he she his him her hers himself herself mr mrs man woman boy girl guy lady brother sister father mother dad mom son
daughter uncle aunt husband wife er sie sein seine seinen seinem seiner seines ihm ihn ihr ihre ihren ihrem ihrer
ihres herr frau junge mann mädchen bruder schwester vater mutter sohn tochter onkel tante
""".split()
_SAID_OF_ONE_SEX = re.compile(rf"\b({'|'.join(_OF_ONE_SEX)})\b", re.IGNORECASE)
_NAME = re.compile(r"\b(Toms?|Mary|Marys|Maria|Marias|Boston)\b")


def renamed(english: str, german: str, share: float, seed: int) -> tuple[str, str]:
    """A pair with another name, or the pair itself.

    Args:
        english: a sentence.
        german: its translation.
        share: of the pairs with one of the three names that get another one, 0 to 1.
        seed: of the choice; the same pair and seed give the same name.

    Returns:
        the English and the German sentence.
    """
    names = [_NAME.findall(side) for side in (english, german)]
    if [len(found) for found in names] != [1, 1] or draw(f"rename {german} {english}", seed) >= share:
        return english, german
    of_english, of_german = names[0][0], names[1][0]
    chosen = draw(f"name {german} {english}", seed)
    if of_english == of_german == "Boston":
        new_german, new_english = CITIES[int(chosen * len(CITIES))]
    elif (of_english, of_german) in (("Tom", "Tom"), ("Mary", "Maria"), ("Mary", "Mary")):
        fitting = MEN + WOMEN
        if _SAID_OF_ONE_SEX.search(f"{english} {german}"):
            fitting = MEN if of_english == "Tom" else WOMEN
        new_german = new_english = fitting[int(chosen * len(fitting))]
    else:
        return english, german
    return _NAME.sub(new_english, english), _NAME.sub(new_german, german)
