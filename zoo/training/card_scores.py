"""The scores of a weight next to those of its card."""

from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from zoo.bundles.card import split_card
from zoo.utils.shipped import shipped


def compared(name: str, scores: Mapping[str, float]) -> list[dict[str, Any]]:
    """Each score of a shipped card, with the one found and the difference; nothing without a card.

    Args:
        name: Of the weight.
        scores: What was found, as it is logged, e.g. `{"test/bleu": 41.3}`.
    """
    card = shipped("model_cards") / f"{name}.md"
    if not card.is_file():
        return []
    rows = []
    for score in split_card(card.read_text(encoding="utf-8"), card)[0]["scores"]:
        set_name = "" if score["split"] == "test" else f"{score['split']}/"
        value = scores.get(f"test/{set_name}{score['metric'].lower()}")
        value = None if value is None else round(value, 2)
        difference = None if value is None else round(value - score["value"], 2)
        row = {"metric": score["metric"], "split": score["split"], "card": score["value"]}
        rows.append({**row, "found": value, "difference": difference})
    return rows


def table(rows: Sequence[Mapping[str, Any]], found: str) -> str:
    """The rows of `compared` as a table; `found` is the name of the column of the scores that were found."""
    cells = [("score", "card", found, "difference")]
    for row in rows:
        name = f"{row['metric']} ({row['split']})"
        if row["found"] is None:
            cells.append((name, f"{row['card']:.2f}", "not scored", ""))
        else:
            cells.append((name, f"{row['card']:.2f}", f"{row['found']:.2f}", f"{row['difference']:+.2f}"))
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    lines = [
        [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))] for line in cells
    ]
    return "\n".join("  ".join(line).rstrip() for line in lines)


class CardScores(Callback):
    """Prints the scores of a test next to those of the card.

    Args:
        name: Of the weight.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Prints the table, once."""
        rows = compared(self._name, {name: value.item() for name, value in trainer.callback_metrics.items()})
        if rows and trainer.is_global_zero:
            print(f"\n{table(rows, 'now')}")
