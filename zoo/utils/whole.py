"""Which distribution is installed: attention-zoo, or attention-zoo-runtime, which only runs exported graphs."""

from zoo.utils.shipped import PACKAGE

RUNTIME_VERBS = ("predict", "serve")
BOTH = (
    "attention-zoo and attention-zoo-runtime are both installed, and overwrite each other's files; "
    "pip uninstall both, then install one"
)


def is_whole() -> bool:
    """Whether training and torch are there."""
    return (PACKAGE / "tasks").is_dir()


def are_both() -> bool:
    """Whether both distributions are installed in the same place."""
    return is_whole() and (PACKAGE / "runtime_only").exists()


def require_whole(what: str) -> None:
    """Raises early if only the runtime is installed.

    Args:
        what: What needs the rest: the beginning of the message.

    Raises:
        ValueError: it is missing; the message says how to install it.
    """
    if not is_whole():
        raise ValueError(
            f"{what} needs the whole package, and this is attention-zoo-runtime, which only runs exported graphs; "
            "pip uninstall attention-zoo-runtime, then: pip install attention-zoo"
        )
