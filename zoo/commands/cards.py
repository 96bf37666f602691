"""`zoo list` and `zoo info`: the cards of the weights."""

import argparse
from typing import Any

from zoo import registry
from zoo.bundles import hub
from zoo.bundles.card import generated_card, split_card
from zoo.bundles.files import HF_HUB, LOCAL_DIR, README, Bundle, read_text
from zoo.utils.shipped import shipped

CARDS = shipped("model_cards")


def read_card(name: str) -> tuple[dict[str, Any], str]:
    """The YAML front matter and the text of a model's card."""
    path = CARDS / f"{name}.md"
    return split_card(path.read_text(encoding="utf-8"), path)


def list_cards(options: argparse.Namespace) -> None:
    """Prints a line for each weight that the options select."""
    names = registry.list_models(options.pattern)
    if not names and options.pattern != "*":
        raise ValueError(f"no model matches '{options.pattern}'; `zoo list` shows all")
    cards = _filtered({name: read_card(name)[0] for name in names}, options)
    rows, pins = [("NAME", "TASK", "PARAMETERS", "SIZE", "SCORE")], registry.all_pins()
    for name, card in cards.items():
        folder = registry.BUNDLED / name
        size = sum(file.stat().st_size for file in folder.iterdir()) if folder.is_dir() else None
        main_score = card["scores"][0]
        rows.append(
            (
                name,
                card["task"],
                _in_millions(card["parameters"]),
                f"{size / 1e6:.1f} MB" if size is not None else "on the Hub" if name in pins else "not here",
                f"{main_score['metric']} {main_score['value']} ({main_score['split']})",
            )
        )
    if options.markdown:
        rows = [tuple(map(str.lower, rows[0])), ("---", "---", "---:", "---:", "---")] + [
            (f"[`{r[0]}`](model_cards/{r[0]}.md)", *r[1:]) for r in rows[1:]
        ]
        print("\n".join(f"| {' | '.join(row)} |" for row in rows))
        return
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    for row in rows:
        cells = [cell.rjust(w) if i in (2, 3) else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def _filtered(cards: dict[str, dict[str, Any]], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The cards that have what --task, --language and --license ask for."""
    for field in ("task", "language", "license"):
        if (wanted := getattr(options, field)) is None:
            continue
        known = {value for card in cards.values() for value in _values(card, field)}
        if wanted not in known:
            allowed = (
                f"{', '.join(sorted(known))}{' for the models selected so far' * (len(cards) < len(registry.TABLE))}"
            )
            raise ValueError(f"--{field} must be one of {allowed}; got {wanted!r}")
        cards = {name: card for name, card in cards.items() if wanted in _values(card, field)}
    return cards


def _values(card: dict[str, Any], field: str) -> list[str]:
    """What a card says in a field: one value, or several."""
    found = card.get(field, [])
    return found if isinstance(found, list) else [found]


def _in_millions(n: int) -> str:
    return f"{n / 1e6:.1f} M" if n >= 1e6 else f"{n / 1e3:.0f} k"


def info(options: argparse.Namespace) -> None:
    """Prints the card of a weight."""
    if options.name.startswith(HF_HUB):
        card = hub.read_card(*hub.split_source(options.name.removeprefix(HF_HUB)))
        if card is not None:  # of a stranger: nothing of it may reach the terminal's controls
            print("".join(c if c.isprintable() or c in "\n\t" else "?" for c in card).rstrip())
            return
    if options.name.startswith((LOCAL_DIR, HF_HUB)):
        print(_card_of(registry.open_bundle(options.name), options.name).rstrip())
        return
    registry.entry(options.name)  # an unknown name raises with the nearest names
    print((CARDS / f"{options.name}.md").read_text(encoding="utf-8").rstrip())


def _card_of(bundle: Bundle, source: str) -> str:
    """The README.md in a folder of weights, or what the weights say of themselves."""
    if (bundle.folder / README).exists():
        return read_text(bundle.folder, README)
    model = registry.model_class(bundle.class_path).from_pretrained(bundle)
    return generated_card(model, f'model = zoo.load("{source}")', bundle.folder.name)
