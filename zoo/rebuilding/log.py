"""The log of `zoo rebuild`, and the comparison of the rebuilt scores with those of the card."""

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import yaml

from zoo.rebuilding.stages import Stage
from zoo.rebuilding.work import RECORD, STAGE, TEST, Rebuild, read_json
from zoo.training.card_scores import compared, table
from zoo.utils.atomic import write_text
from zoo.utils.places import cache_folder

LOG = "rebuild.json"
DIGITS = 5  # significant ones, of curves
LEFT_OUT = ("config", "ckpt_path", "stages", "log", "weights")  # of the settings of a run


def comparison(work: Rebuild) -> str:
    """The scores of the card and of the rebuilt weights, as a table."""
    found = _scores(work)
    scores = compared(work.name, found)
    if not scores:
        return "\n".join(f"{name} {value:.2f}" for name, value in sorted(found.items()))
    return table(scores, "rebuilt")


def _compared(work: Rebuild) -> list[dict[str, Any]]:
    """The scores of the card and the rebuilt ones, for the log."""
    rows = compared(work.name, _scores(work))
    return [{"rebuilt" if key == "found" else key: value for key, value in row.items()} for row in rows]


def _scores(work: Rebuild) -> dict[str, float]:
    return read_json(work.output / TEST / RECORD)["scores"]


def write_log(work: Rebuild) -> Path:
    """Writes rebuild.json, in which no path of this machine is left.

    Returns:
        Its path.
    """
    test = read_json(work.output / TEST / RECORD)
    found = {
        "weight": work.name,
        "scores": _compared(work) or test["scores"],
        "stages": [_stage(work, stage) for stage in work.stages],
        "test": test,
    }
    file = work.output / LOG
    places = {work.output: "OUTPUT", work.recipe.parent: "recipes", cache_folder(): "CACHE"}
    places |= {Path(work.root): "DATA"} if work.root else {}
    write_text(file, _text(_without(places, found)) + "\n")
    return file


def _stage(work: Rebuild, stage: Stage) -> dict[str, Any]:
    done = read_json(work.folder(stage) / STAGE)
    found = {"name": stage.name, "what": stage.what, "uses": done["uses"], "data": done["data"], "made": done["made"]}
    if stage.kind != "fit":
        return {**found, "processor_seconds": done.get("processor_seconds"), "definition": done["definition"]}
    run = work.run_folder(stage)
    config = next(iter(sorted(run.glob("version_*/config.yaml"))), run / "config.yaml")  # the latter without a logger
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    places = {Path(settings["trainer"]["default_root_dir"]).parent: "OUTPUT"}  # it may have been moved since
    record = {key: value for key, value in read_json(work.folder(stage) / RECORD).items() if key != "data"}
    return {
        **found,
        "checkpoint": stage.given.get("checkpoint", "best"),
        **({"export": stage.given["export"]} if "export" in stage.given else {}),
        **record,
        "settings": _without(places, _given({key: value for key, value in settings.items() if key not in LEFT_OUT})),
        "curve": _curve(run / "metrics.csv"),
    }


def _given(value: Any) -> Any:
    """Settings without what is null, and without the callback that notes down."""
    if isinstance(value, dict):
        return {key: _given(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        ours = "zoo.rebuilding.record.Record"
        return [_given(item) for item in value if not (isinstance(item, dict) and item.get("class_path") == ours)]
    return value


def _curve(file: Path) -> list[dict[str, float]]:
    """The rows of metrics.csv that have a score of the validation."""
    if not file.is_file():
        return []
    found = []
    with open(file, newline="", encoding="utf-8") as table:
        for row in csv.DictReader(table):
            values = {name: float(value) for name, value in row.items() if name.startswith("val/") and value}
            if values:
                known = {name: _rounded(value) for name, value in values.items() if math.isfinite(value)}
                found.append({"epoch": int(row["epoch"]), "step": int(row["step"]) + 1, **known})
    return found


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _without(places: dict[Path, str], value: Any) -> Any:
    """The same with names like DATA and OUTPUT instead of paths of this machine."""
    if isinstance(value, dict):
        return {key: _without(places, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without(places, item) for item in value]
    if not isinstance(value, str):
        return value
    for path, name in places.items():
        for form in (str(path.absolute()), str(path)):
            value = re.sub(rf"^(local-dir:)?{re.escape(form)}(?=/|$)", rf"\g<1>{name}", value)
    return value


def _text(value: Any, depth: int = 0) -> str:
    """JSON with the points of a curve, and other short values, on one line each."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + depth <= 118 or not isinstance(value, (dict, list)) or not value:
        return line
    inner = " " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {_text(item, depth + 1)}" for key, item in value.items()]
    else:
        parts = [_text(item, depth + 1) for item in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{inner}" + f",\n{inner}".join(parts) + f"\n{' ' * depth}{last}"
