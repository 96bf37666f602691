"""Soft targets of a text: several language models say what they expect in each of its places.

    python -m zoo.rebuilding.predicting JOB      JOB: a JSON file with the keyword arguments of `predict_text`

A model that learns the mean of what they expect comes closer to it than one that learns the words alone (distillation:
Hinton, Vinyals and Dean 2015, https://arxiv.org/abs/1503.02531).

Shapes: N words of a part, K words of which the probability is kept, B streams, T words of a segment.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save

from zoo.data.common.arrays import token_type
from zoo.data.language_modelling.plain_text import RunningText
from zoo.data.language_modelling.soft_targets import SoftTargets
from zoo.rebuilding.ensemble import Ensemble
from zoo.rebuilding.lines import run_job
from zoo.rebuilding.stages import read_recipe
from zoo.text import EOS
from zoo.utils.atomic import new_file
from zoo.utils.modules import load_class

_PART = 1 << 18  # words between two savings
_STREAMS, _SEGMENT = 64, 8  # few at once: the probabilities of all words stay in the cache


def predict_text(
    target: str,
    recipe: str,
    root: str | None,
    models: Sequence[str],
    extra_text: str | None = None,
    share: float = 1.0,
    words: int = 64,
) -> None:
    """Writes the mean probabilities of the words in each place of a recipe's training text.

    Parts that are done are kept until the whole is.

    Args:
        target: file to write, as `soft_targets` of the data reads it.
        recipe: the recipe.
        root: folder of the data.
        models: names of `zoo list`, or local-dir:FOLDER, of language models with the vocabulary of the data.
        extra_text: file of lines after those of the training text, as `extra_text` of the data reads it.
        share: of the models, in the training text itself; the rest is the probability that the word which stands there
            gets in addition. In the extra text the models have all.
        words: K, the most probable ones; all if the vocabulary has fewer.

    Raises:
        ValueError: the data are no running text, a model has another vocabulary, or a number is out of range.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1; got {share}")
    if words < 1:
        raise ValueError(f"words must be at least 1; got {words}")
    ensemble = Ensemble(models)
    data = _data(recipe, root, extra_text)
    if data._tokenizer().to_json() != ensemble.tokenizer.to_json():
        raise ValueError(f"{models[0]} has another vocabulary than the data of {recipe}")
    ids = np.asarray(data._text("train").ids)
    written = len(ids) if extra_text is None else len(_data(recipe, root)._text("train").ids)
    files = {start: Path(target).with_name(f"part{start}.safetensors") for start in range(0, len(ids), _PART)}
    for start, file in files.items():
        if not file.is_file():
            shares = np.where(np.arange(start, min(start + _PART, len(ids))) < written, share, 1.0)
            found = _predict(ensemble, ids[start : start + _PART], shares, words)
            with new_file(file) as opened:
                opened.write(save(found))
            print(f"{min(start + _PART, len(ids)):,} of {len(ids):,} words are predicted", flush=True)
    parts = [load_file(file) for file in files.values()]
    SoftTargets.write(
        Path(target), ids, *(np.concatenate([part[name] for part in parts]) for name in ("words", "probabilities"))
    )
    for file in files.values():
        file.unlink()


def _predict(ensemble: Ensemble, ids: np.ndarray, shares: np.ndarray, words: int) -> dict[str, np.ndarray]:
    """The K most probable words in each place of a part, (N, K); the models have shares (N,)."""
    words = min(words, len(ensemble.tokenizer))
    streams = min(_STREAMS, len(ids))
    steps = -(-len(ids) // streams)
    more = streams * steps - len(ids)  # words behind the end, so that all streams are equally long
    labels = torch.from_numpy(np.pad(ids.astype(np.int64), (0, more), constant_values=EOS)).view(streams, steps)
    inputs = torch.cat([torch.tensor([EOS]), labels.flatten()[:-1]]).view(streams, steps)
    rest = torch.from_numpy(np.pad(1 - shares.astype(np.float32), (0, more))).view(streams, steps, 1)
    kept = np.empty((streams, steps, words), token_type(ensemble.tokenizer))
    probabilities = np.empty((streams, steps, words), np.float16)
    ensemble.start(streams)
    for first in range(0, steps, _SEGMENT):
        part = slice(first, first + _SEGMENT)
        mixed = ensemble.read(inputs[:, part]) * (1 - rest[:, part])
        best = mixed.scatter_add(-1, labels[:, part, None], rest[:, part]).topk(words)
        kept[:, part], probabilities[:, part] = best.indices.numpy(), best.values.numpy()
    return {
        name: array.reshape(-1, words)[: len(ids)]
        for name, array in (("words", kept), ("probabilities", probabilities))
    }


def _data(recipe: str, root: str | None, extra_text: str | None = None) -> RunningText:
    """The data of a recipe, with their training text prepared."""
    given = read_recipe(Path(recipe))["data"]
    data_class = load_class(given["class_path"])
    if not issubclass(data_class, RunningText):
        raise ValueError(f"language models predict running text; {data_class.__name__} of {recipe} is none")
    data = data_class(**{**given.get("init_args", {}), "root": root, "extra_text": extra_text})
    data.prepare_data()
    data.setup("fit")
    return data


def main(arguments: Sequence[str]) -> int:
    """Runs one job; the exit code is that of `run_job`."""
    return run_job(predict_text, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
