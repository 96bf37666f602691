"""The card of a weight (README.md of its folder): its own format, the Hub's format, and a generated card.

A card is YAML front matter and prose. This file does not import torch.
"""

import hashlib
import inspect
import json
import re
import sys
from typing import Any

from zoo.bundles.model import Model

LIBRARY = "attention-zoo"
MAX_FRONT_MATTER = 2**16  # characters
_MARK = "<!-- written by attention-zoo; sha256 of the text above: {} -->"


def pictures(card: str) -> list[str]:
    """Names of the pictures that a card shows."""
    return re.findall(r"!\[[^\]]*\]\((\w[\w.-]*\.(?:png|jpe?g))\)", card)


def has_front_matter(text: str) -> bool:
    """Whether a card begins with the line that begins its front matter."""
    return _plain(text).startswith("---\n")


def split_card(text: str, where: Any) -> tuple[dict[str, Any], str]:
    """The YAML front matter and the prose of a card."""
    import yaml

    match = re.fullmatch(r"---\n(.*?\n)---\n(.*)", _plain(text), re.DOTALL)
    if not match:
        raise ValueError(f"{where} must start with YAML front matter between two lines ---")
    if len(match[1]) > MAX_FRONT_MATTER:
        raise ValueError(f"{where}: the front matter may have {MAX_FRONT_MATTER:,} characters; got {len(match[1]):,}")
    try:
        front = yaml.safe_load(match[1])
    except RecursionError as error:
        raise ValueError(f"{where}: the front matter is nested too deeply") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{where}: {error}") from error
    if not isinstance(front, dict):
        raise ValueError(f"{where}: the front matter must be lines of the form key: value")
    return front, match[2]


def _plain(text: str) -> str:
    """Without what editors on Windows add: a byte order mark, and their line ends."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def yaml_text(data: Any) -> bytes:
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000).encode()


def for_the_hub(front: dict[str, Any], model: Model, name: str) -> tuple[dict[str, Any], dict[str, list]]:
    """The front matter in the Hub's format, and the scores as files of .eval_results: name -> entries.

    Keys that are already in the Hub's format (e.g. `model-index`) stay as they are.
    """
    # replaced by model-index, pipeline_tag
    front = {key: value for key, value in front.items() if key not in ("name", "task")}
    scores, data, tags = front.pop("scores", []), _listed(front, "datasets"), _listed(front, "tags")
    ids = [item for item in data if re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", item)]  # the Hub rejects anything else
    front |= {
        "library_name": LIBRARY,
        "pipeline_tag": front.get("pipeline_tag") or model.task.hub,
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
            "dataset": {
                "name": dataset,
                "type": dataset if dataset in ids else re.sub(r"[^\w.]+", "-", dataset),
                "split": split,
            },
            "metrics": [
                {"type": s["metric"], "value": s["value"]}
                | ({"args": {"signature": s["signature"]}} if s.get("signature") else {})
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


def generated_card(model: Model, loading: str, name: str) -> str:
    """A card for weights of which only the files are known; `loading` is the line of Python that loads them."""
    cls = type(model)
    defaults = {key: p.default for key, p in inspect.signature(cls.__init__).parameters.items()}
    changed = {key: value for key, value in model.config.items() if defaults[key] != value}
    paper = (sys.modules[cls.__module__].__doc__ or "").strip().splitlines()
    labels = [str(label) for label in getattr(model, "label_names", None) or []]
    table = "".join(f"| `{key}` | `{json.dumps(value)}` |\n" for key, value in changed.items())
    more = " and more" if len(labels) > 50 else ""
    parts = [
        f"# {name}\n",
        f"A `{cls.__name__}` of {LIBRARY} with {sum(p.numel() for p in model.parameters()):,} parameters"
        + (f" ({paper[0].rstrip('.')}).\n" if paper else ".\n"),
        "```python\nimport zoo\n" + "".join(map(_import, model.own_modules())),
        f"{loading}\nprint({model.task.example})\n```\n",
        "## Configuration\n",
        *(
            [f"Arguments that differ from the defaults:\n\n| argument | value |\n|---|---|\n{table}"]
            if table
            else ["The defaults.\n"]
        ),
        *([f"Labels: {', '.join(labels[:50])}{more}.\n"] if labels else []),
        "## Data, scores and licence\n",
        "This card was generated from the files alone: its publisher must add the training data, the scores\n"
        "and the terms of use.\n",
    ]
    return f"---\nlibrary_name: {LIBRARY}\n---\n" + "\n".join(parts)


def _import(module: str) -> str:
    """The line that makes the parts of a user's module known."""
    if module == "__main__":  # of a notebook or a script
        return "# first define and register the class there, as its author did\n"
    return f"import {module}  # of the author: without it the weights cannot be loaded\n"


def marked(card: str, repo_id: str) -> str:
    """The card with a line that marks it as generated, as long as nobody changes it."""
    if f"hf-hub:{repo_id}" not in card:
        card += f'\n## From the Hub\n\n`zoo.load("hf-hub:{repo_id}@main")`, or better a commit id instead of main.\n'
    card = card.rstrip() + "\n"
    return f"{card}\n{_MARK.format(hashlib.sha256(card.encode()).hexdigest())}\n"


def is_marked(card: bytes) -> bool:
    """Whether `marked` made this card and it is unchanged since."""
    text, _, last = card.decode(errors="replace").rstrip().rpartition("\n\n")
    return last == _MARK.format(hashlib.sha256(f"{text}\n".encode()).hexdigest())
