"""The tables and the picture of docs/faithfulness.md, from the certificates stored next to the cards.

python benchmarks/faithfulness.py
"""

import argparse
import json
from pathlib import Path

from zoo.explanations import Certificate

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "faithfulness.png"
ORDERS = {"attention": "#1b6ca8", "gradient": "#e08e45", "gradient x input": "#f2c078", "random": "#bbbbbb"}
RULES = {"matter": "first", "agrees": "second", "used": "third", "alone": "fourth"}
HEAD = [
    "| weight | answer | attention | gradient | random | tau | permuted | others |",
    "|---|---|---:|---:|---:|---:|---:|---:|",
]


def stored() -> list[Certificate]:
    """All stored certificates, those of a task together."""
    files = sorted((ROOT / "model_cards").glob("*.certificate.json"))
    found = [Certificate.from_dict(json.loads(file.read_text(encoding="utf-8"))) for file in files]
    order = ("classification", "translation", "captioning")
    return sorted(found, key=lambda certificate: (order.index(certificate.task), certificate.name))


def table(certificates: list[Certificate]) -> str:
    """A row for each weight."""
    rows = []
    for found in certificates:
        mean = {measure: figure.mean for measure, figure in found.figures.items()}
        best = max(mean["comprehensiveness, gradient"], mean["comprehensiveness, gradient x input"])
        numbers = [mean["comprehensiveness, attention"], best, mean["comprehensiveness, random"]]
        numbers += [mean["tau, leaving out"], mean["permutation"], mean["adversary"]]
        cells = " | ".join(f"{number:.2f}" for number in numbers)
        rows.append(f"| [`{found.name}`](../model_cards/{found.name}.md) | {found.verdict} | {cells} |")
    return "\n".join([*HEAD, *rows])


def near(certificates: list[Certificate]) -> str:
    """For each rule the weights for which it is near its limit."""
    found = {rule: [one for one in certificates if key in one.near] for key, rule in RULES.items()}
    listed = {rule: ", ".join(f"`{one.name}`" for one in near) or "none" for rule, near in found.items()}
    return "\n".join(f"- the {rule}: {names}" for rule, names in listed.items())


def draw(certificates: list[Certificate]) -> None:
    """Comprehensiveness of each order, with its interval."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 0.55 * len(certificates) + 1.2))
    for number, found in enumerate(reversed(certificates)):
        for shift, (order, color) in enumerate(ORDERS.items()):
            mean, low, high, _ = found.figures[f"comprehensiveness, {order}"]
            place = number + 0.3 - 0.2 * shift
            label = order if number == 0 else None
            axes.barh(place, mean, 0.19, xerr=[[mean - low], [high - mean]], color=color, ecolor="#555555", label=label)
    axes.set_yticks(range(len(certificates)), [found.name for found in reversed(certificates)])
    axes.set_xlabel("comprehensiveness: probability lost by erasing")
    axes.set_ylim(-0.6, len(certificates) - 0.4)
    axes.axvline(0, color="#555555", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=4)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found = stored()
    draw(found)
    print(table(found))
    print(f"\nThe limit of a rule is inside the interval for\n\n{near(found)}")
