"""What is sent to the Hugging Face Hub: a checked bundle, its card as the Hub wants it, and a list of hashes.

A repository holds, in one commit,

    config.json, model.safetensors, <assets>, golden.safetensors   the bundle, unchanged
    README.md, *.png                                               the card, and the pictures it shows
    .eval_results/<data set>.yaml                                  the scores of the card
    manifest.json                                                  {"files": {name: {"sha256": ..., "size": bytes}}}

The network is in zoo/hub.py.
"""

import hashlib
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo import __version__, hub, registry

if TYPE_CHECKING:  # importing torch here would make the command line slow
    from zoo.module import ZooModule

LIBRARY = "attention-zoo"
RESULTS = ".eval_results"
TASKS = {  # method of a model -> task on the Hub, example of its use
    "translate": ("translation", 'model.translate("...").text'),
    "caption": ("image-to-text", 'model.caption("photo.jpg").text'),
    "classify": ("text-classification", 'model.classify("...").label'),
    "complete": ("text-generation", 'model.complete("...").text'),
    "answer": ("question-answering", 'model.answer("...", "... XXXXX ...").answer'),
}
MAX_GOLDEN_BYTES = 16 * 2**20
GOLDEN_ATOL = 2e-3  # another processor sums in another order
_MARK = "<!-- written by attention-zoo; sha256 of the text above: {} -->"


@dataclass(frozen=True)
class Bundle:
    """What is to be published.

    Attributes:
        repo_id: `ORG/REPO`.
        name: Of the weight, for people.
        files: Name in the repository -> file or content; not yet manifest.json, which depends on the card that stays.
        pictures: Names of the files that only the card needs.
    """

    repo_id: str
    name: str
    files: dict[str, Path | bytes]
    pictures: frozenset[str] = frozenset()

    def table(self) -> str:
        """Name, size in bytes and the first 12 digits of the sha256 of each file, then the front matter of the card."""
        files = {**self.files, hub.MANIFEST: _manifest(self.files)}
        rows = [("FILE", "BYTES", "SHA256")]
        rows += [(name, f"{len(data):,}", hashlib.sha256(data).hexdigest()[:12]) for name, data in _contents(files)]
        rows.append(("total", f"{sum(len(data) for _, data in _contents(files)):,}", ""))
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        lines = [f"{name:<{widths[0]}}  {size:>{widths[1]}}  {digest}".rstrip() for name, size, digest in rows]
        front = bytes(files[hub.README]).decode().split("\n---\n")[0]
        return "\n".join([*lines, "", f"{hub.README} of {self.repo_id}:", front, "---"])


@dataclass(frozen=True)
class Published:
    """What `publish` has done.

    Attributes:
        repo_id: `ORG/REPO`.
        commit: Full id of the commit.
        kept_card: Whether a README.md that people wrote was there and has stayed.
    """

    repo_id: str
    commit: str
    kept_card: bool

    @property
    def source(self) -> str:
        """What `zoo.load` takes to get exactly these files."""
        return f"hf-hub:{self.repo_id}@{self.commit}"

    def __str__(self) -> str:
        kept = f"kept the {hub.README} of {self.repo_id}, which this package did not write; --replace-card replaces it\n" * self.kept_card
        return f'published {self.repo_id} as commit {self.commit}\n{kept}zoo.load("{self.source}")'


# ---- collecting ----


def prepare(source: str, repo_id: str, card: Path | None = None) -> Bundle:
    """Collects and checks what is to be published; contacts nothing unless the weight itself is on the Hub.

    Args:
        source: A name of `zoo list`, `local-dir:PATH`, or PATH.
        repo_id: `ORG/REPO`.
        card: Card of a named weight. Else README.md of the folder counts, or one is generated.

    Raises:
        BundleError: The weights are damaged, do not load, or compute something else than when they were saved.
        ValueError: Unknown name, a folder with files that do not belong there, or a bad `repo_id` or card.
    """
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", repo_id):
        raise ValueError(f"the repository must be ORG/REPO, e.g. my-name/my-model; got '{repo_id}'")
    named = source in registry.TABLE
    if named:
        entry = registry.entry(source)
        if entry.repo_id is None:
            folder = hub.bundled(source, entry.sha256)
        else:
            folder = hub.download(entry.repo_id, entry.revision, list(entry.sha256))
    elif source.startswith("local-dir:") or "/" in source or Path(source).is_dir():
        folder = hub.local_dir(source.removeprefix("local-dir:"))
        card = folder / hub.README if (folder / hub.README).is_file() else None
    else:
        registry.entry(source)  # the nearest names
    config = hub.read_config(folder)
    text = hub.read_text(card) if card else None
    pictures = {name: card.parent / name for name in _pictures(text) if (card.parent / name).is_file()} if card else {}

    names = {hub.CONFIG, *config["sha256"], *({hub.GOLDEN} if (folder / hub.GOLDEN).is_file() else ())}
    allowed = {*names, *pictures, hub.README, hub.MANIFEST}
    if others := sorted({file.name for file in folder.iterdir()} - allowed):
        raise ValueError(f"{folder} holds files that are not published: {', '.join(others)}; move them elsewhere")
    if others := sorted(name for name in names if not name.endswith(hub.SUFFIXES)):
        raise ValueError(f"{folder / hub.CONFIG} lists files of a kind that is not published: {', '.join(others)}")

    model = registry.load(f"local-dir:{folder}")
    _check_golden(model, folder)
    name = source if named else repo_id.split("/")[1]
    if text is None:
        text = _generated_card(model, repo_id, name)
    front, prose = split_card(text, card or "the card")
    front, results = _for_the_hub(front, model, name)
    files: dict[str, Path | bytes] = {name: folder / name for name in sorted(names)}
    files |= pictures | {f"{RESULTS}/{file}": _yaml(entries) for file, entries in results.items()}
    readme = f"---\n{_yaml(front).decode()}---\n{prose}"
    files[hub.README] = (_marked(readme, repo_id) if named or card is None else readme).encode()
    return Bundle(repo_id, name, files, frozenset(pictures))


def _check_golden(model: "ZooModule", folder: Path) -> None:
    """Raises `BundleError` unless the weights still give the output that was saved beside them."""
    from torch import allclose, equal

    from zoo.loading import read_tensors

    path = folder / hub.GOLDEN
    if not path.is_file():
        return
    golden = read_tensors(hub.file_of(folder, hub.GOLDEN, MAX_GOLDEN_BYTES))
    found = model.golden()
    for key in sorted(golden.keys() | found.keys()):
        want, got = golden.get(key), found.get(key)
        same = want is not None and got is not None and want.shape == got.shape
        if same and want.is_floating_point():
            same = allclose(got, want, rtol=0, atol=GOLDEN_ATOL)
        if not (same and (want.is_floating_point() or equal(got, want))):
            raise hub.MisfitError(f"{path}: the weights do not give the '{key}' that was saved with them; export them again")


def _pictures(card: str) -> list[str]:
    """Names of the pictures beside a card that it shows."""
    return re.findall(r"!\[[^\]]*\]\((\w[\w.-]*\.(?:png|jpe?g))\)", card)


def _contents(files: dict[str, Path | bytes]) -> Iterable[tuple[str, bytes]]:
    for name in sorted(files):
        content = files[name]
        yield name, content if isinstance(content, bytes) else content.read_bytes()


def _manifest(files: dict[str, Path | bytes]) -> bytes:
    listed = {name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in _contents(files)}
    return (json.dumps({"files": listed}, indent=2, ensure_ascii=False) + "\n").encode()


# ---- the card ----


def split_card(text: str, where: Any) -> tuple[dict[str, Any], str]:
    """The YAML front matter and the prose of a card."""
    import yaml

    match = re.fullmatch(r"---\n(.*?\n)---\n(.*)", text, re.DOTALL)
    if not match:
        raise ValueError(f"{where} must start with YAML front matter between two lines ---")
    try:
        front = yaml.safe_load(match[1])
    except yaml.YAMLError as error:
        raise ValueError(f"{where}: {error}") from error
    if not isinstance(front, dict):
        raise ValueError(f"{where}: the front matter must be lines of the form key: value")
    return front, match[2]


def _yaml(data: Any) -> bytes:
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000).encode()


def _for_the_hub(front: dict[str, Any], model: "ZooModule", name: str) -> tuple[dict[str, Any], dict[str, list]]:
    """The front matter in the words of the Hub, and the scores as files of .eval_results: name -> entries.

    What the card says in these words already (e.g. `model-index`) stays as it is.
    """
    front = {key: value for key, value in front.items() if key not in ("name", "task")}  # model-index, pipeline_tag say it
    scores, data, tags = front.pop("scores", []), _listed(front, "datasets"), _listed(front, "tags")
    ids = [item for item in data if re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", item)]  # all else the Hub refuses
    front |= {
        "library_name": LIBRARY,
        "pipeline_tag": front.get("pipeline_tag") or _task(model),
        "datasets": ids,
        "tags": list(dict.fromkeys([*tags, LIBRARY, "attention", "pytorch-lightning", type(model).__name__])),
    }
    front = {key: value for key, value in front.items() if value not in (None, [])}
    if not isinstance(scores, list):
        raise ValueError(f"the scores of a card must be a list; got {scores!r}")
    for score in scores:
        if not isinstance(score, dict) or not {"metric", "value", "split"} <= score.keys():
            raise ValueError(f"each of the scores of a card must have metric, value and split; got {score}")
    if not scores:
        return front, {}
    dataset = data[0] if data else "unknown"
    results = [
        {
            "task": {"type": front.get("pipeline_tag", "other")},
            "dataset": {"name": dataset, "type": dataset if dataset in ids else re.sub(r"[^\w.]+", "-", dataset), "split": split},
            "metrics": [
                {"type": s["metric"], "value": s["value"]} | ({"args": {"signature": s["signature"]}} if s.get("signature") else {})
                for s in scores
                if s["split"] == split
            ],
        }
        for split in dict.fromkeys(s["split"] for s in scores)
    ]
    front.setdefault("model-index", [{"name": name, "results": results}])
    entries = [
        {"dataset": {"id": dataset, "task_id": f"{s['split']}_{s['metric']}"}, "value": s["value"]}
        | ({"notes": s["signature"]} if s.get("signature") else {})
        for s in scores
    ]
    return front, {f"{dataset.replace('/', '_')}.yaml": entries} if dataset in ids else {}


def _listed(front: dict[str, Any], key: str) -> list[str]:
    value = front.get(key) or []
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def _task(model: "ZooModule") -> str | None:
    return next((task for verb, (task, _) in TASKS.items() if hasattr(model, verb)), None)


def _generated_card(model: "ZooModule", repo_id: str, name: str) -> str:
    """A card for weights of which only the files are known."""
    cls = type(model)
    defaults = {key: p.default for key, p in inspect.signature(cls.__init__).parameters.items()}
    changed = {key: value for key, value in model.config.items() if defaults[key] != value}
    paper = (sys.modules[cls.__module__].__doc__ or "").strip().splitlines()
    example = next((text for verb, (_, text) in TASKS.items() if hasattr(model, verb)), "model")
    if model.config.get("pair"):
        example = 'model.classify(("...", "...")).label'
    labels = [str(label) for label in getattr(model, "label_names", None) or []]
    table = "".join(f"| `{key}` | `{json.dumps(value)}` |\n" for key, value in changed.items())
    more = " and more" if len(labels) > 50 else ""
    parts = [
        f"# {name}\n",
        f"A `{cls.__name__}` of {LIBRARY} with {sum(p.numel() for p in model.parameters()):,} parameters"
        + (f" ({paper[0].rstrip('.')}).\n" if paper else ".\n"),
        "```python\nimport zoo\n",
        f'model = zoo.load("hf-hub:{repo_id}@main")  # better: the id of a commit instead of main\nprint({example})\n```\n',
        "## Configuration\n",
        *([f"Arguments that differ from the defaults:\n\n| argument | value |\n|---|---|\n{table}"] if table else ["The defaults.\n"]),
        *([f"Labels: {', '.join(labels[:50])}{more}.\n"] if labels else []),
        "## Data, scores and licence\n",
        "This card was generated from the files alone: what the model was trained on, how well it does and under\n"
        "which terms it may be used is for its publisher to say.\n",
    ]
    return f"---\nlibrary_name: {LIBRARY}\n---\n" + "\n".join(parts)


def _marked(card: str, repo_id: str) -> str:
    """The card with a line that says that no person wrote it, as long as nobody changes it."""
    if f"hf-hub:{repo_id}" not in card:
        card += f'\n## From the Hub\n\n`zoo.load("hf-hub:{repo_id}@main")`, or better the id of a commit instead of main.\n'
    card = card.rstrip() + "\n"
    return f"{card}\n{_MARK.format(hashlib.sha256(card.encode()).hexdigest())}\n"


def is_marked(card: bytes) -> bool:
    """Whether `_marked` made this card and nobody has changed it since."""
    text, _, last = card.decode(errors="replace").rstrip().rpartition("\n\n")
    return last == _MARK.format(hashlib.sha256(f"{text}\n".encode()).hexdigest())


# ---- sending ----


def publish(
    bundle: Bundle, *, private: bool = False, replace_card: bool = False, token: str | None = None, message: str | None = None
) -> Published:
    """Sends a bundle in one commit: somebody who loads the repository gets all of the old files or all of the new.

    Args:
        bundle: From `prepare`.
        private: Create the repository as a private one.
        replace_card: Also replace a README.md that people wrote.
        token: Of the Hub; by default that of `hf auth login` or HF_TOKEN.
        message: Of the commit.

    Raises:
        FetchError: The Hub cannot be reached, refuses, or was changed meanwhile; nothing was published then.
    """
    repo_id, files = bundle.repo_id, dict(bundle.files)
    parent, there = hub.open_repository(repo_id, private, token)
    card = hub.read_remote(repo_id, parent, hub.README, token) if hub.README in there else None
    kept = card is not None and card != files[hub.README] and not is_marked(card) and not replace_card
    if kept:
        files = {name: content for name, content in files.items() if name not in bundle.pictures} | {hub.README: card}
    files[hub.MANIFEST] = _manifest(files)
    stale = _of_manifest(hub.read_remote(repo_id, parent, hub.MANIFEST, token)) if hub.MANIFEST in there else set()
    stale = (stale & there) - files.keys()
    message = message or f"{bundle.name}, by {LIBRARY} {__version__}"
    return Published(repo_id, hub.commit(repo_id, parent, files, sorted(stale), message, token), kept)


def _of_manifest(data: bytes) -> set[str]:
    """The names in a manifest.json; none if another program wrote it."""
    try:
        return set(json.loads(data)["files"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return set()


def push(
    model: "ZooModule",
    repo_id: str,
    *,
    private: bool = False,
    message: str | None = None,
    token: str | None = None,
    card: str | None = None,
) -> Published:
    """Saves a model and publishes it; see `ZooModule.push_to_hub`."""
    with tempfile.TemporaryDirectory() as parent:
        folder = model.save_pretrained(Path(parent) / "weights", golden=True)
        if card is not None:
            (folder / hub.README).write_text(card, encoding="utf-8")
        bundle = prepare(f"local-dir:{folder}", repo_id)
        return publish(bundle, private=private, replace_card=card is not None, token=token, message=message)
