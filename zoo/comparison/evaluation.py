"""Evaluates the trained model of a job.

python -m zoo.comparison.evaluation FOLDER     evaluates the training of FOLDER/job.json, writes FOLDER/result.json
"""

import bisect
import gc
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from zoo.comparison.attention import mean_attention_measures
from zoo.comparison.data import count_pairs, load_data
from zoo.comparison.files import JOB, RESULT, TRAINING, TRANSLATIONS, read_json, write_json, write_translations
from zoo.comparison.measures import clock
from zoo.metrics import CorpusScore
from zoo.registry import register
from zoo.results.translation import Translation
from zoo.tasks.translation import TranslationModule
from zoo.training.checkpoints import model_of
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.cores import processor
from zoo.utils.modules import find_local_modules, imported, load_class

BINS = 4  # of source lengths


def length_bins(sources: Sequence[str], count: int = BINS) -> list[tuple[str, list[int]]]:
    """Bins of about equally many sentences by length in words: names such as "9-11" and row numbers, shortest first.

    Sentences of one length stay together, so few lengths give fewer bins.
    """
    lengths = [len(source.split()) for source in sources]
    ordered = sorted(lengths)
    tops = sorted({ordered[math.ceil(len(ordered) * n / count) - 1] for n in range(1, count + 1)})
    rows: list[list[int]] = [[] for _ in tops]
    for n, length in enumerate(lengths):
        rows[bisect.bisect_left(tops, length)].append(n)
    named = []
    for top, found in zip(tops, rows, strict=True):
        low = min(lengths[n] for n in found)
        named.append((f"{low}-{top}" if low < top else f"{top}", found))
    return named


def _scores(hypotheses: Sequence[str], references: Sequence[str], data: Any) -> dict[str, float]:
    score = CorpusScore(data.tgt_lang, data.tokenized)
    score.update(hypotheses, references)
    return {key: round(value, 2) for key, value in score.compute().items()}


def _translated(model: TranslationModule, sources: list[str]) -> tuple[list[Translation], float]:
    """Translations by the model's own beam search in fp32, and sentences per second."""
    model.translate(sources[:8], split_sentences=False)
    gc.collect()
    now = clock(model.device.type)
    start = now()
    found = model.translate(sources, split_sentences=False)
    return found, len(sources) / (now() - start)


def evaluate(folder: str | Path) -> dict[str, Any]:
    """Evaluates a folder's best checkpoint on the validation set, and once on the first test set.

    Args:
        folder: of a job, after its training (zoo/comparison/files.py).

    Returns:
        The content of result.json.
    """
    folder = Path(folder)
    job, training = read_json(folder / JOB), read_json(folder / TRAINING)
    best = folder / job["run"] / "checkpoints" / "best.ckpt"
    register(load_class(job["model"]))  # the recipe's class, which may be the user's
    model = model_of(best).to(job["device"])
    if not isinstance(model, TranslationModule):
        raise ValueError(f"{best} holds a {type(model).__name__}; `zoo compare` compares translators")
    data = load_data(job["data"])
    sources, references = map(list, zip(*data.val_pairs(), strict=True))
    validation, _ = _translated(model, sources)
    test_sources, test_references = map(list, zip(*data.test_sets()[0], strict=True))
    test, rate = _translated(model, test_sources)
    texts = [out.text for out in test]
    write_translations(folder / TRANSLATIONS["validation"], [out.text for out in validation])
    write_translations(folder / TRANSLATIONS["test"], texts)
    by_length = {
        words: {
            "sentences": len(rows),
            "bleu": _scores([texts[n] for n in rows], [test_references[n] for n in rows], data)["bleu"],
        }
        for words, rows in length_bins(test_sources)
    }
    signatures = CorpusScore(data.tgt_lang, data.tokenized).signatures
    result = {
        "name": job["name"],
        "seed": job["seed"],
        "settings": job["settings"],
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "pairs": job["settings"].get("pairs") or count_pairs(data),
        "parameters": sum(p.numel() for p in model.parameters()),
        "training": training,
        "validation": {
            **_scores([out.text for out in validation], references, data),
            "attention": mean_attention_measures(validation),
        },
        "test": {"name": data.test_names[0], **_scores(texts, test_references, data), "bleu_by_length": by_length},
        "decoding_sentences_per_second": round(rate, 2),
        "beam_size": model.config["beam_size"],
        "length_penalty": model.config["length_penalty"],
        "signature": signatures["bleu"],
        "device": job["device"],
        "at_once": job["at_once"],
        "hardware": _hardware(job["device"]),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    write_json(folder / RESULT, result)
    return result


def _hardware(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(0)
    return processor()


if __name__ == "__main__":
    keep_freed_memory()
    try:
        find_local_modules()
        with imported([]):
            evaluate(sys.argv[1])
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"zoo: error: {' '.join(str(error).split())}")
