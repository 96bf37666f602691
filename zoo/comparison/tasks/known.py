"""All tasks that `zoo compare` can compare, and the one of a model."""

from zoo.comparison.tasks.base import ComparedTask
from zoo.comparison.tasks.classification import ClassificationTask
from zoo.comparison.tasks.language_modelling import LanguageModellingTask
from zoo.comparison.tasks.translation import TranslationTask

TASKS: tuple[ComparedTask, ...] = (TranslationTask(), ClassificationTask(), LanguageModellingTask())


def task_of(cls: type) -> ComparedTask:
    """The task of a model's class.

    Raises:
        ValueError: its models cannot be compared.
    """
    for task in TASKS:
        if isinstance(cls, type) and issubclass(cls, task.module):
            return task
    raise ValueError(
        f"`zoo compare` compares {', '.join(task.kinds for task in TASKS)}, and {cls.__module__}.{cls.__qualname__} "
        "is none of them"
    )
