"""`zoo demo`: the models in the browser."""

import argparse
import json
import re
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

from zoo import registry
from zoo.bundles.files import LOCAL_DIR
from zoo.commands.cards import read_card
from zoo.commands.graphs import exported_graphs, graphs_of, is_exported
from zoo.demo import Models, Shown, check_target, serve, write_folder
from zoo.demo.page import FIRST, MANIFEST
from zoo.utils.extras import require
from zoo.utils.places import at_home

_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)
_NOT_IN_ADDRESSES = re.compile(r"[^\w.-]+", re.ASCII)


def run(options: argparse.Namespace) -> None:
    """Writes the page as a folder, or serves it until Ctrl-C."""
    given = _labelled(options.name)
    if options.export is not None:
        _export(options.export, given or _here())
        return
    if not 0 <= options.port <= 65_535:
        raise ValueError(f"--port must be from 0 to 65535; got {options.port}")
    offered = {**given, **_here()}
    ready = {label: folder for label, name in offered.items() if (folder := _prepared(name))}
    for label, name in (given or ({} if ready else {FIRST: FIRST})).items():
        ready[label] = _prepare(name)
    serve(options.port, Models(_listed(offered, ready), ready, _prepare), _opener(not options.no_browser))


def _labelled(names: list[str]) -> dict[str, str]:
    """What the page calls each model -> its name: that of the registry, and of a folder the last part of its path."""
    found: dict[str, str] = {}
    for name in names:
        if name.startswith(LOCAL_DIR):
            label = _NOT_IN_ADDRESSES.sub("-", at_home(name.removeprefix(LOCAL_DIR)).resolve().name)
        else:
            label = registry.entry(name).name
        if found.setdefault(label, name) != name or (label != name and label in registry.TABLE):
            raise ValueError(f"two models of the page would be called {label}; rename the folder of {name}")
    return found


def _export(folder: str, models: dict[str, str]) -> None:
    check_target(folder)  # fails before any work
    require("demo", "`zoo demo --export`")
    ready = {label: _prepare(name) for label, name in models.items()}
    sizes = write_folder(folder, [(shown, ready[shown.name]) for shown in _listed(models, ready)])
    for name, size in {**sizes, "total": sum(sizes.values())}.items():
        print(f"{name:40}{size / 1e6:8.2f} MB")


def _opener(opens_browser: bool) -> Callable[[str], None]:
    def started(url: str) -> None:
        print(f"zoo: the page is at {url} (Ctrl-C ends it)", file=sys.stderr, flush=True)
        if opens_browser:
            webbrowser.open(url)

    return started


def _prepared(name: str) -> Path | None:
    """The 8-bit graphs of a model that are there already; of a folder of graphs these, whatever they are."""
    return at_home(name.removeprefix(LOCAL_DIR)) if is_exported(name) else exported_graphs(name, int8=True)


def _prepare(name: str) -> Path:
    """The 8-bit graphs of a model, which are exported if they are not in the cache."""
    if is_exported(name):
        return at_home(name.removeprefix(LOCAL_DIR))
    require("onnx", "`zoo demo`, which exports a model on first use,")
    return graphs_of(name, int8=True)


def _here() -> dict[str, str]:
    """The weights that this installation has or can fetch, as `_labelled`; the first one of the page first."""
    pins = registry.all_pins()
    names = [name for name in registry.list_models() if registry.is_bundled(name) or name in pins]
    return {name: name for name in sorted(names, key=lambda name: name != FIRST)}


def _listed(models: dict[str, str], ready: dict[str, Path]) -> list[Shown]:
    """What the page says of models; folders are among the ready ones."""
    return [_shown(name) if name in registry.TABLE else _own(label, ready[label]) for label, name in models.items()]


def _own(label: str, graphs: Path) -> Shown:
    """A model of the user, which has no card."""
    about = json.loads((graphs / MANIFEST).read_text(encoding="utf-8"))
    return Shown(
        label, about["task"], f"{about['class']} in the folder {label}", [], {"parameters": about["parameters"]}
    )


def _shown(name: str) -> Shown:
    card, text = read_card(name)
    heading = _HEADING.search(text)
    languages = card.get("language") or []
    score = {key: card["scores"][0][key] for key in ("metric", "value", "split")}
    facts = {"parameters": card["parameters"], "paper": card["paper"], "license": card["license"], "score": score}
    return Shown(
        name,
        card["task"],
        heading[1] if heading else name,
        [languages] if isinstance(languages, str) else list(languages),
        facts,
        text,
    )
