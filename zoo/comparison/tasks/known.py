"""All tasks that `zoo compare` can compare, and the one of a model."""

from collections.abc import Mapping
from typing import Any

from zoo.comparison.tasks.base import ComparedTask
from zoo.comparison.tasks.captioning import CaptioningTask
from zoo.comparison.tasks.classification import ClassificationTask, MultiLabelTask
from zoo.comparison.tasks.language_modelling import LanguageModellingTask
from zoo.comparison.tasks.reading import ReadingTask
from zoo.comparison.tasks.translation import TranslationTask

TASKS: tuple[ComparedTask, ...] = (
    TranslationTask(),
    ClassificationTask(),
    MultiLabelTask(),
    CaptioningTask(),
    LanguageModellingTask(),
    ReadingTask(),
)


def task_of(cls: type, options: Mapping[str, Any]) -> ComparedTask:
    """The task of a model.

    Args:
        cls: its class.
        options: its arguments.

    Raises:
        ValueError: such models cannot be compared.
    """
    for task in TASKS:
        if task.compares(cls, options):
            return task
    raise ValueError(
        f"`zoo compare` compares {', '.join(dict.fromkeys(task.kinds for task in TASKS))}, and {cls.__module__}.{cls.__qualname__} "
        "is none of them"
    )
