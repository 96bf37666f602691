"""Eight lessons as notebooks, with exercises that check themselves.

    from zoo.lessons import check
    check("3.1", my_function)

`zoo lesson check` does the same for a whole notebook. The notebooks are in docs/lessons; a wheel has them in
zoo/lessons/notebooks. A module lesson_N.py has the exercises of each.
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from zoo.lessons.exercises import Exercise

__all__ = ["LESSONS", "Lesson", "check", "exercises_of", "judge"]


class Lesson(NamedTuple):
    """A lesson: its notebook without the ending, what it asks, and the weights that it loads."""

    name: str
    question: str
    weights: tuple[str, ...]


LESSONS = {
    1: Lesson(
        "01_one_vector",
        "Why is one vector not enough?",
        ("luong_dot.dates",),
    ),
    2: Lesson(
        "02_additive_attention",
        "How does a decoder find the word it needs?",
        ("luong_concat_no_feed.multi30k_en_de",),
    ),
    3: Lesson(
        "03_scores_and_scaling",
        "Which score, and why divide by the square root of the size?",
        ("luong_general.multi30k_en_de",),
    ),
    4: Lesson(
        "04_local_attention",
        "Must we look everywhere?",
        ("luong_local_p_no_feed.multi30k_en_de",),
    ),
    5: Lesson(
        "05_looking_at_pictures",
        "Can a model learn where to look if it looks at one place only?",
        ("show_attend_tell_soft.flickr8k",),
    ),
    6: Lesson(
        "06_documents_and_sentences",
        "Which words and sentences decide?",
        ("han.imdb", "structured_self_attention.sst2"),
    ),
    7: Lesson(
        "07_from_attention_to_the_transformer",
        "What is left if attention does everything?",
        ("transformer_128.multi30k_en_de",),
    ),
    8: Lesson(
        "08_is_attention_an_explanation",
        "Is attention an explanation?",
        ("structured_self_attention.sst2",),
    ),
}


def exercises_of(lesson: int) -> "dict[str, Exercise]":
    """The exercises of a lesson by number, such as "3.1".

    Raises:
        ValueError: There is no such lesson.
    """
    if lesson not in LESSONS:
        raise ValueError(f"there are lessons {min(LESSONS)} to {max(LESSONS)}; got {lesson}")
    return importlib.import_module(f"zoo.lessons.lesson_{lesson}").EXERCISES


def judge(number: str, answer: Callable[..., Any]) -> str | None:
    """What is wrong with an answer, as a hint of one line; None if it is right.

    Args:
        number: Of the exercise, such as "3.1".
        answer: The function that the exercise asks for.

    Raises:
        ValueError: There is no such exercise.
    """
    lesson = number.partition(".")[0] if isinstance(number, str) else ""
    found = exercises_of(int(lesson)) if lesson.isdecimal() and int(lesson) in LESSONS else {}
    if number not in found:
        allowed = ", ".join(found) if found else "lesson.exercise, such as '3.1'"
        raise ValueError(f"the number of an exercise must be one of {allowed}; got {number!r}")
    return found[number].judge(answer)


def check(number: str, answer: Callable[..., Any]) -> None:
    """Prints whether an answer is right, or a hint. Arguments and errors as of `judge`."""
    hint = judge(number, answer)
    print(f"{number} right" if hint is None else f"{number} wrong: {hint}")
