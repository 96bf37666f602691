"""`zoo calibrate`: how far the answers of a weight can be trusted, measured on the validation data of a recipe."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_only

from zoo.bundles.files import LOCAL_DIR, Bundle, local_dir, rewrite
from zoo.text.familiar import language
from zoo.training.checks import given_options, given_values
from zoo.training.lightning_cli import run
from zoo.verbs.confidence import (
    CALIBRATION,
    Calibration,
    Evidence,
    Judged,
    calibration_error,
    fitted,
    warnings_of,
    with_limits,
)

ENOUGH = 200  # validation inputs, of which half fit the calibration


class Calibrate(Callback):
    """Judges the answers of a model to all validation batches, and fits the calibration at the end.

    Attributes:
        calibration: the result.
        report: what was measured, as text.
    """

    calibration: Calibration | None = None
    report = ""

    def __init__(self) -> None:
        self._found: list[tuple[Evidence, Any]] = []

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Asks for the event first, because not all tasks have one."""
        self._event: str = pl_module.event()  # pyright: ignore[reportCallIssue]  # of ScoredModule

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Collects the evidence."""
        if batch is not None:
            self._found += pl_module.judge(batch)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Fits the map on one half of the answers of all processes, and measures it on the other."""
        self._found = pl_module.judged_by_all(self._found)
        outcomes = pl_module.happened([outcome for _, outcome in self._found])
        judged = Judged([evidence for evidence, _ in self._found], outcomes)
        usual = [*judged.evidence]
        texts = getattr(pl_module.data_module, "unanswerable", list)()
        for evidence in pl_module.evidence(texts) if texts else []:
            judged.add(evidence, False)
        for_fit, for_error = judged.halves()
        facts = {"answers": "date", "exact": True} if texts else {"language": _language(usual)}
        fit = with_limits(fitted(for_fit, self._event, **facts), usual)
        confidences = [fit.confidence(found) or 0.0 for found in for_error.evidence]
        error = calibration_error(confidences, for_error.right)
        self.calibration = replace(fit, error=round(error, 3))
        warned = sum(bool(warnings_of(fit, found)) for found in usual)
        hits = sum(bool(warnings_of(fit, found)) for found in judged.evidence[len(usual) :])
        self.report = (
            f"confidence: the probability that {self._event}\n"
            f"fitted on {len(for_fit.right):,} answers, measured on {len(for_error.right):,} others: expected "
            f"calibration error {error:.3f}; mean confidence {_mean(confidences):.3f}, right "
            f"{_mean(for_error.right):.3f}\n"
            f"{warned:,} of {len(usual):,} validation inputs get a warning ({warned / len(usual):.1%})"
        )
        if texts:
            self.report += f", and {hits:,} of {len(texts):,} inputs without a right answer ({hits / len(texts):.1%})"
        if len(usual) < ENOUGH:
            self.report += (
                f"\nrough: {len(usual):,} validation inputs are few; give some hundred, in a file of their own"
            )


def _language(usual: list[Evidence]) -> str | None:
    """The language of most inputs that have one, if those are at least a quarter."""
    found = Counter(language(evidence.text) for evidence in usual if evidence.text)
    del found[None]
    (best, count), *_ = [*found.most_common(1), (None, 0)]
    return best if 4 * count >= len(usual) else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def calibrate(args: list[str], typed: list[str] | None = None) -> None:
    """Runs `zoo calibrate` with command-line arguments: those of `zoo validate`.

    Args:
        args: The verb and its arguments.
        typed: What the user wrote for them.

    Raises:
        ValueError: a setting is wrong, or --weights names no folder.
    """
    names = given_values(args, "--weights")
    if not names or not names[-1].startswith(LOCAL_DIR):
        raise ValueError(
            "zoo calibrate needs --weights local-dir:FOLDER, a folder of weights that it may change: `zoo export` "
            "writes one"
        )
    if given_options(args, "precision"):
        raise ValueError("zoo calibrate measures in fp32: leave out --precision")
    if given := given_options(args, "search"):
        raise ValueError(f"zoo calibrate measures the weight's own search: leave out {given[0]}")
    bundle: Bundle = local_dir(names[-1].removeprefix(LOCAL_DIR))
    callback = Calibrate()
    run(["validate", *args[1:]], typed, [callback])
    if callback.calibration is None:
        raise ValueError("the validation data has no batches, so there is nothing to calibrate on")
    _write(bundle, callback.calibration, callback.report)


@rank_zero_only
def _write(bundle: Bundle, calibration: Calibration, report: str) -> None:
    found = rewrite(bundle, {CALIBRATION: calibration.to_json()})
    print(f"{report}\n{Path(found.folder) / CALIBRATION} written; sha256 of config.json: {found.config_sha256}")
