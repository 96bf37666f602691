"""The certificate: what was measured, and one plain line by fixed rules.

The rules, in terms of means over the inputs (docs/faithfulness.md explains each limit):

1. *The attended words matter*: erasing them first lowers the probability of the answer more than erasing words at
   random does (the interval of the difference is above 0), by at least half of what the better gradient order gains
   (the margin, what it is above that, is at least 0).
2. *The order agrees*: Kendall's tau of attention and of leaving out each word is at least 0.3.
3. *The weights are used*: permuting them changes the output by at least 0.1 (median total variation).
4. *Other weights do not do*: weights with the same output (change at most 0.05) differ by at most half the largest
   possible divergence, 0.347 of 0.693 nats.

"yes" if all hold, "no" if the first one does not, else "partly". A rule is near its limit if the interval of its
measure holds it: other inputs may then decide otherwise. The first rule has two measures with the limit 0, the
difference and the margin: it is near if the interval of one holds 0, and that of neither is below it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Literal

from zoo.explanations.intervals import Interval

ORDERS = ("attention", "gradient", "gradient x input", "random")

SHARE = 0.5  # of the advantage of the better gradient order over the random one
TAU = 0.3
USED = 0.1
FEW = 30  # inputs, with which a verdict says little
DIFFERENT = log(2) / 2
TEST_DATA = "the test data"  # of the weight's recipe

RULES = {  # what is near its limit, in the words of a card
    "matter": "whether the {units} matter",
    "agrees": "whether their order agrees",
    "used": "whether the weights are used",
    "alone": "whether other weights do",
}

ROWS = {  # measure -> what a table calls it
    **{f"comprehensiveness, {order}": f"comprehensiveness, {order} order" for order in ORDERS},
    "comprehensiveness, rollout": "comprehensiveness, order of attention rollout",
    "comprehensiveness, flow": "comprehensiveness, order of attention flow",
    "advantage": "comprehensiveness, attention minus random",
    "margin": "the same, minus half of what the better gradient order gains",
    **{f"sufficiency, {order}": f"sufficiency, {order} order" for order in ORDERS},
    "one region, attention": "probability lost, the most attended region grey",
    "one region, random": "probability lost, a random region grey",
    "tau, gradient": "Kendall's tau of attention and gradient",
    "tau, gradient x input": "Kendall's tau of attention and gradient x input",
    "tau, leaving out": "Kendall's tau of attention and leaving a word out",
    "permutation": "change of the output when the weights are permuted (median)",
    "adversary": "divergence of other weights with the same output (0 to 0.69)",
    "adversary, above": f"share of the answers for which it is above {DIFFERENT:.2f}",
}


@dataclass(frozen=True)
class Certificate:
    """Whether the attention of a model explains its answers.

    Attributes:
        name: of the model.
        task: name of its task.
        drawn: number of inputs given.
        inputs: number of those that have an answer to explain.
        decisions: number of answers about them; a classifier gives one, a translator one per word.
        seed: of all random choices.
        figures: measure -> mean over the inputs, with a 95 % bootstrap interval; see `ROWS`.
        seconds: processor time.
        data: what the inputs are from; empty: unknown.
    """

    name: str
    task: str
    drawn: int
    inputs: int
    decisions: int
    seed: int
    figures: Mapping[str, Interval]
    seconds: int
    data: str = ""

    @property
    def needed(self) -> float:
        """The smallest advantage over random words with which the attended ones matter, by the first rule."""
        mean = {measure: figure.mean for measure, figure in self.figures.items()}
        random = mean["comprehensiveness, random"]
        return SHARE * max(mean[f"comprehensiveness, {order}"] - random for order in ("gradient", "gradient x input"))

    @property
    def checks(self) -> dict[str, bool]:
        """The four rules, and whether they hold."""
        mean = {measure: figure.mean for measure, figure in self.figures.items()}
        return {
            "matter": self.figures["advantage"].low > 0 and mean["advantage"] >= self.needed,
            "agrees": mean["tau, leaving out"] >= TAU,
            "used": mean["permutation"] >= USED,
            "alone": mean["adversary"] <= DIFFERENT,
        }

    @property
    def near(self) -> list[str]:
        """The rules that other inputs may decide otherwise: the interval of the measure holds the limit."""
        margin = ("margin", 0.0) if "margin" in self.figures else ("advantage", self.needed)  # an earlier version
        halves = [(self.figures[measure], limit) for measure, limit in (("advantage", 0.0), margin)]
        fails = any(figure.high <= limit for figure, limit in halves)  # whatever the other half says
        near = ["matter"] if not fails and any(figure.low < limit for figure, limit in halves) else []
        limits = {"agrees": ("tau, leaving out", TAU), "used": ("permutation", USED), "alone": ("adversary", DIFFERENT)}
        for rule, (measure, limit) in limits.items():
            if self.figures[measure].low < limit < self.figures[measure].high:
                near.append(rule)
        return near

    @property
    def verdict(self) -> Literal["yes", "partly", "no"]:
        """Whether the attention may be read as an explanation."""
        checks = self.checks
        return "yes" if all(checks.values()) else "partly" if checks["matter"] else "no"

    @property
    def reasons(self) -> dict[str, str]:
        """What each rule found, in words."""
        mean = {measure: figure.mean for measure, figure in self.figures.items()}
        checks = self.checks
        own, random = mean["comprehensiveness, attention"], mean["comprehensiveness, random"]
        best = max(mean["comprehensiveness, gradient"], mean["comprehensiveness, gradient x input"])
        erased = f"erasing them costs {own:.2f} of the probability, random ones {random:.2f}"
        if self.figures["advantage"].low > 0:
            short = f"do not matter enough ({erased}, those of the gradient {best:.2f})"
        else:
            short = f"are not shown to matter ({erased}, and the interval of the difference reaches below 0)"
        alone = (
            "other weights with the same answer are on average not very different"
            if checks["alone"]
            else "quite different weights give the same answer"
        )
        more = ""
        if "adversary, above" in mean:  # not in certificates of earlier versions
            more = f", above {DIFFERENT:.2f} for {100 * mean['adversary, above']:.0f} % of the answers"
        if checks["alone"] and self.figures["adversary"].high > DIFFERENT:  # the search gives a lower bound only
            more += f", its interval reaches above the limit, {DIFFERENT:.2f}"
        return {
            "matter": f"the attended {self.units} matter ({erased})"
            if checks["matter"]
            else f"the attended {self.units} {short}",
            "agrees": f"their order {'agrees' if checks['agrees'] else 'hardly agrees'} with leaving each one out "
            f"(tau {_beside(mean['tau, leaving out'], TAU)})",
            "used": f"permuted weights {'change' if checks['used'] else 'hardly change'} the answer "
            f"({_beside(mean['permutation'], USED)})",
            "alone": f"{alone} (divergence found {_beside(mean['adversary'], DIFFERENT)} of {log(2):.2f}{more})",
        }

    @property
    def units(self) -> str:
        """What is attended to."""
        return "regions" if self.task == "captioning" else "words"

    def line(self) -> str:
        """The plain line."""
        checks, reasons = self.checks, self.reasons
        good = [reasons[rule] for rule, holds in checks.items() if holds]
        bad = [reasons[rule] for rule, holds in checks.items() if not holds]
        first, but, second = (bad, "although", good) if self.verdict == "no" else (good, "but", bad)
        why = _listed(first) + (f", {but} {_listed(second)}" if second else "")
        return f"may be read as an explanation: {self.verdict}, because {why}"

    def doubt(self) -> str:
        """What is near a limit; empty if nothing is."""
        if not self.near:
            return ""
        rules = _listed([RULES[rule].format(units=self.units) for rule in self.near])
        return f"Near its limit, so that other inputs may decide otherwise: {rules}."

    def table(self) -> str:
        """The figures as aligned text, and the plain line."""
        width = max(len(label) for label in ROWS.values())
        inputs = f"{self.inputs:,} inputs" + (f" of {self.data}" if self.data else "")
        lines = [
            f"{self.name}: {inputs}, {self.decisions:,} answers, seed {self.seed}, {self.seconds:,} s",
            f"{'':{width}}{'mean':>8}  95 % interval",
            *(
                f"{ROWS[measure]:{width}}{figure.mean:8.3f}  {figure.low:.3f} to {figure.high:.3f}"
                for measure, figure in self._rows()
            ),
        ]
        few = [f"rough: {self.inputs} inputs are few; give some hundred"] if self.inputs < FEW else []
        return "\n".join([*lines, "", self.line(), *([self.doubt()] if self.near else []), *few])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What a notebook shows."""
        printer.text(self.table())

    def _rows(self) -> list[tuple[str, Interval]]:
        return [(measure, self.figures[measure]) for measure in ROWS if measure in self.figures]

    @property
    def command(self) -> str:
        """What measures it again; empty unless `zoo explain` drew the inputs from the test data."""
        if self.data != TEST_DATA:
            return ""
        seed = f" --seed {self.seed}" if self.seed else ""
        return f"zoo explain {self.name} --certificate --data.root DATA --limit {self.drawn}{seed}"

    def section(self) -> str:
        """The section of a card."""
        rows = [
            f"| {ROWS[measure]} | {figure.mean:.3f} | {figure.low:.3f} to {figure.high:.3f} |"
            for measure, figure in self._rows()
        ]
        by = f", drawn at random, in {self.seconds:,} s of processor time, by\n`{self.command}`" if self.command else ""
        answers = f"{self.decisions:,} answer{'' if self.decisions == 1 else 's'}"
        data = self.data or "unknown data"
        return (
            f"## Does the attention explain?\n\nIt {self.line()}.\n"
            + (f"{self.doubt()}\n" if self.near else "")
            + "\n"
            + "\n".join(["| measure | mean | 95 % interval |", "|---|---:|---:|", *rows])
            + f"\n\nMeasured on {self.inputs:,} inputs of {data} ({answers}){by}.\n"
            "docs/faithfulness.md says what the measures are, and the rules of the answer.\n"
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        figures = {measure: figure._asdict() for measure, figure in self.figures.items()}
        return {
            "name": self.name,
            "task": self.task,
            "data": self.data,
            "drawn": self.drawn,
            "inputs": self.inputs,
            "decisions": self.decisions,
            "seed": self.seed,
            "seconds": self.seconds,
            "verdict": self.verdict,
            "line": self.line(),
            "checks": self.checks,
            "figures": figures,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Certificate":
        """From what `to_dict` gave."""
        figures = {measure: Interval(**figure) for measure, figure in values["figures"].items()}
        stated = {key: values[key] for key in ("name", "task", "drawn", "inputs", "decisions", "seed", "seconds")}
        return cls(**stated, figures=figures, data=values.get("data", ""))


def margins(values: Mapping[str, Sequence[float]]) -> list[float]:
    """For each input, by how much its advantage is above what the first rule needs.

    Args:
        values: measure -> one per input.
    """
    random = values["comprehensiveness, random"]
    orders = [values[f"comprehensiveness, {order}"] for order in ("gradient", "gradient x input")]
    best = max(orders, key=sum)
    return [
        advantage - SHARE * (gradient - drawn)
        for advantage, gradient, drawn in zip(values["advantage"], best, random, strict=True)
    ]


def _beside(value: float, limit: float) -> str:
    """With two decimals, or as many more as show on which side of a limit it is: 0.299 is not 0.3."""
    digits = 2
    while (round(value, digits) < limit) != (value < limit):
        digits += 1
    return f"{value:.{digits}f}"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
