"""`zoo explain`: the certificate of a weight, as it was measured, or measured now."""

import argparse
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from zoo import registry
from zoo.bundles.files import HF_HUB, LOCAL_DIR
from zoo.commands.cards import read_card
from zoo.commands.inputs import pair
from zoo.commands.recipes import find
from zoo.utils import strict_json
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.modules import load_class

LIMIT = 100  # inputs

_NONE = re.compile(r"^It has (no certificate, because .+?)\.\s", re.MULTILINE | re.DOTALL)  # of a card


def run(options: argparse.Namespace) -> None:
    """Prints a certificate as a table or as JSON.

    Args:
        options: name, certificate, inputs, limit, seed, root, json.

    Raises:
        ValueError: an option is wrong, nothing was measured for the weight, or it has no certificate.
    """
    given = {"--inputs": options.inputs, "--limit": options.limit, "--seed": options.seed, "--data.root": options.root}
    if not options.certificate and (without := [name for name, value in given.items() if value is not None]):
        raise ValueError(f"{', '.join(without)}: for measuring only, add --certificate")
    if options.inputs and options.root:
        raise ValueError("--data.root has the test data of the recipe, and --inputs other texts: give one of them")
    if options.inputs == "":
        raise ValueError("--inputs is empty; give the name of a file")
    if options.name.startswith(LOCAL_DIR):
        registry.open_bundle(options.name)  # raises for what is no folder of weights
    options.limit = LIMIT if options.limit is None else options.limit
    options.seed = options.seed or 0
    if options.limit < 1:
        raise ValueError(f"--limit must be at least 1; got {options.limit}")
    if options.name in registry.TABLE and (reason := _NONE.search(read_card(options.name)[1])):
        raise ValueError(f"{options.name} has {' '.join(reason[1].split())}")
    found = _measured(options) if options.certificate else _stored(options.name)
    print(json.dumps(found.to_dict(), indent=1, ensure_ascii=False) if options.json else found.table())


def _stored(name: str) -> Any:
    from zoo.explanations import Certificate  # late: it loads torch

    if is_named := not _is_folder(name):
        registry.entry(name)  # an unknown name raises with the nearest names
    file = registry.certificate_file(name)
    if not file.is_file():
        more = "" if is_named else " --inputs FILE"
        raise ValueError(f"nothing was measured for {name} yet: zoo explain {name} --certificate{more} measures it")
    return Certificate.from_dict(strict_json.loads(file.read_text(encoding="utf-8"), registry.MAX_CERTIFICATE))


def _is_folder(name: str) -> bool:
    """Whether a weight has no name of the registry, and so no recipe with test data."""
    return name.startswith((LOCAL_DIR, HF_HUB))


def _measured(options: argparse.Namespace) -> Any:
    from tqdm import tqdm

    from zoo.data.common.files import read_lines
    from zoo.explanations import faithfulness
    from zoo.explanations.certificate import TEST_DATA
    from zoo.explanations.measure import SEEDS

    if not 0 <= options.seed < SEEDS:  # here too, before anything is read
        raise ValueError(f"--seed must be from 0 to {SEEDS - 1}; got {options.seed}")
    if _is_folder(options.name) and not options.inputs:
        raise ValueError(f"{options.name} has no recipe with test data: give texts, one a line, as --inputs FILE")
    keep_freed_memory()
    file = options.inputs
    lines = [(line, number) for number, line in enumerate(read_lines(Path(file)), 1) if line] if file else []
    model = registry.load(options.name)
    inputs = [(_read(line, model.task.input, f"{file}, line {number}"), number) for line, number in lines]
    if not file:
        inputs = [(found, 0) for found in test_inputs(options.name, options.root)]
    drawn = random.Random(options.seed).sample(inputs, min(options.limit, len(inputs)))
    place = 0

    def progress(sources: Iterable[Any]) -> Iterator[Any]:
        nonlocal place
        for number, source in enumerate(tqdm(sources, unit="input", disable=None)):
            place = number
            yield source

    try:
        sources = [source for source, _ in drawn]
        return faithfulness(model, sources, options.name, options.seed, progress, file or TEST_DATA)
    except ValueError as error:
        if file and error.__cause__ and drawn:  # of an input, which has a number in the drawing only
            raise ValueError(f"{file}, line {drawn[place][1]}: {error.__cause__}") from error
        raise


def _read(line: str, kind: str, where: str) -> Any:
    try:
        return pair(line) if kind == "pair" else line
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def test_inputs(name: str, root: str | None) -> list[Any]:
    """The raw test inputs of a weight's recipe, in the order of the data set.

    Args:
        name: of a shipped weight.
        root: folder of the data.

    Raises:
        ValueError: there is no such recipe, or its task has no certificate.
    """
    recipe = yaml.safe_load(find(name).read_text(encoding="utf-8"))["data"]
    data = load_class(recipe["class_path"])(**recipe.get("init_args", {}), root=root)
    if data.task not in INPUTS:
        raise ValueError(f"there is no certificate for {data.task}; there is one for {', '.join(INPUTS)}")
    return list(INPUTS[data.task](data))


def _texts(data: Any) -> Iterator[str | tuple[str, str]]:
    data.fetch()
    for example in data.examples("test"):
        yield example.text if example.text2 is None else (example.text, example.text2)


def _sources(data: Any) -> Iterator[str]:
    data.fetch()
    for source, _ in data.test_sets()[0]:
        yield source


def _photos(data: Any) -> Iterator[bytes]:
    images = data.images("test")
    for record in data.records("test"):
        if record.image in images:
            with images.open(record.image) as file:
                yield file.read()


INPUTS: dict[str, Callable[[Any], Iterator[Any]]] = {
    "classification": _texts,
    "translation": _sources,
    "captioning": _photos,
}
