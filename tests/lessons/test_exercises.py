"""Right answers pass, wrong ones get a hint, and the notebooks ask for what is checked."""

import ast
import json

import numpy as np
import pytest
import torch
from lessons import solutions

from zoo.lessons import LESSONS, check, exercises_of, judge
from zoo.lessons.exercises import Exercise, difference
from zoo.lessons.notebooks import FOLDER

ALL = {number: exercise for lesson in LESSONS for number, exercise in exercises_of(lesson).items()}


@pytest.mark.parametrize("number", ALL)
def test_the_solution_is_right(number):
    assert judge(number, getattr(solutions, ALL[number].function)) is None


@pytest.mark.parametrize("number", ALL)
def test_single_precision_and_lists_are_right_too(number):
    exercise = ALL[number]

    def single(x):
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            return x.float()
        if isinstance(x, tuple):
            return [single(part) for part in x]
        return torch.tensor(x).item() if isinstance(x, float) else x

    if number != "7.4":  # its reference is not the answer
        assert exercise.judge(lambda *arguments: single(exercise.reference(*arguments))) is None


@pytest.mark.parametrize("number", ALL)
def test_wrong_answers_get_a_hint(number):
    for answer, words in [(lambda *given: None, "it returns nothing yet"), *solutions.WRONG[number]]:
        hint = judge(number, answer)
        assert hint is not None and words in hint and "\n" not in hint, hint


@pytest.mark.parametrize("number", ALL)
def test_each_known_mistake_is_one_and_gets_its_hint(number):
    exercise = ALL[number]
    for hint, mistake in exercise.mistakes:
        assert exercise.judge(mistake) == hint


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_has_exercises_and_mistakes(lesson):
    numbers = [*exercises_of(lesson)]
    assert 3 <= len(numbers) <= 5 and numbers == [f"{lesson}.{n}" for n in range(1, len(numbers) + 1)]
    assert sum(len(solutions.WRONG[number]) for number in numbers) >= 3


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_notebook_asks_for_these_functions(lesson):
    cells = json.loads((FOLDER / f"{LESSONS[lesson].name}.ipynb").read_text(encoding="utf-8"))["cells"]
    tagged = ["".join(cell["source"]) for cell in cells if "answer" in cell["metadata"].get("tags", [])]
    wanted = {exercise.function: number for number, exercise in exercises_of(lesson).items()}
    assert [ast.parse(source).body[0].name for source in tagged] == [*wanted]
    sources = ["".join(cell["source"]) for cell in cells]
    for name, number in wanted.items():
        (asked,) = [n for n, source in enumerate(sources) if source == f'check("{number}", {name})']
        (stub,) = [n for n, source in enumerate(sources) if source.startswith(f"def {name}(")]
        assert asked == stub + 1
        assert f"**{number}**" in sources[stub - 1]
        solution, function = getattr(solutions, name), ast.parse(sources[stub]).body[0]
        assert [part.arg for part in function.args.args] == [
            *solution.__code__.co_varnames[: solution.__code__.co_argcount]
        ]


def test_check_prints_one_line(capsys):
    check("3.1", solutions.scaled_dot)
    check("3.1", lambda query, keys: None)
    assert capsys.readouterr().out == "3.1 right\n3.1 wrong: it returns nothing yet\n"


@pytest.mark.parametrize("number", ["3.9", "9.1", "3", "", None, 3.1])
def test_unknown_exercises(number):
    with pytest.raises(ValueError, match="the number of an exercise must be one of .*3.1.*; got "):
        check(number, lambda: None)


def test_an_answer_may_raise_or_write_into_its_arguments():
    exercise = Exercise("f", lambda: [(torch.ones(2),)], lambda x: 2 * x)
    assert exercise.judge(lambda x: x.mul_(2)) is None
    assert exercise.judge(lambda: None).startswith("TypeError: ")
    assert exercise.judge(3) == "f must be a function; got int"
    assert len(exercise.judge(lambda x: 1 / 0 if x.sum() < 0 else [][len("long" * 99)])) <= 160


@pytest.mark.parametrize(
    "found, wanted, hint",
    [
        (None, 1.0, "it returns nothing yet"),
        ([1.0], torch.ones(1), "return a tensor, not list"),
        (torch.ones(2, 1), torch.ones(2), "the shape is (2, 1); it should be (2,)"),
        (torch.ones(2), torch.ones(2, dtype=torch.bool), "the type is torch.float32; it should be torch.bool"),
        (torch.tensor([torch.nan]), torch.ones(1), "there are NaN or infinite values"),
        (torch.tensor([1.5]), torch.ones(1), "the shape is right, the values are not: they differ by up to 0.5"),
        ((1.0,), (1.0, 2.0), "return 2 values, separated by commas"),
        ((1.0, 3.0), (1.0, 2.0), "value 2 of 2: got 3 where 2 is right"),
        (True, 1.0, "return a number, not bool"),
        ({1: 2.0}, {1: 3.0}, "at 1: got 2 where 3 is right"),
        ([1], [2], "got [1] where [2] is right"),
        (torch.ones(3), 3, "got tensor([1., 1., 1.]) where 3 is right"),
        (np.ones(2), [1.0, 1.0], "got array([1., 1.]) where [1.0, 1.0] is right"),
        ({"a": torch.ones(2)}, {"b": 1}, "got {'a': tensor([1., 1.])} where {'b': 1} is right"),
        (torch.ones(2).to_sparse(), torch.ones(2), "return a dense tensor on the CPU"),
        (torch.ones(2, device="meta"), torch.ones(2), "return a dense tensor on the CPU"),
        (torch.tensor(2.0), 2.0, None),
        (2, 2.0, None),
    ],
)
def test_hints(found, wanted, hint):
    assert difference(found, wanted, 1e-9) == hint
