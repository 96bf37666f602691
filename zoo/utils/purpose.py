"""What this process is for: if it only predicts, it does without Lightning."""

import sys

_predicts = False


def predict_only() -> None:
    """Says that this process will predict, then end. Only for processes of our own, before a model is imported."""
    global _predicts
    _predicts = True


def predicts_only() -> bool:
    """Whether the process said so. If Lightning is there already, doing without it saves nothing."""
    return _predicts and "lightning.pytorch" not in sys.modules
