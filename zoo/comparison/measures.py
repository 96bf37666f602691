"""The measurements of the comparison (zoo/comparison/jobs.py): the speed of a training, and a trained model.

    python -m zoo.comparison.measures FOLDER     evaluates the training of FOLDER/job.json and writes FOLDER/result.json

Shapes: T target tokens, S source tokens; both include EOS.
"""

import bisect
import gc
import importlib
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

try:
    import resource
except ImportError:  # Windows
    resource = None

from zoo.batches.translation import PairBatch
from zoo.data.common.files import write_atomically
from zoo.metrics import CorpusScore
from zoo.registry import register
from zoo.results.translation import Translation
from zoo.tasks.translation import TranslationModule
from zoo.training.checkpoints import is_fast_dev_run, model_of
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.modules import find_local_modules, imported
from zoo.utils.shipped import shipped

RECIPES = shipped("recipes") / "comparison"
BASE = "base"  # recipe with the common settings
TRAINING, RESULT, JOB = "training.json", "result.json", "job.json"
WARM_UP = 20  # first steps of a process that are not timed
BINS = 4  # of source lengths
BAND = 0.1  # of the source length; at least one token


def clock(device: str) -> Callable[[], float]:
    """Seconds: with one CPU thread this process's processor time, which other load hardly affects, else real time."""
    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


class TrainingMeter(Callback):
    """Times training steps and writes training.json into the run's folder at the end of training.

    A step lasts from the end of the previous one to its own end, including the loading of its batch. Validation,
    checkpoints and the first steps of each process are excluded. It continues after an interruption. Time is that of
    `clock`.
    """

    def __init__(self) -> None:
        self.rates: list[float] = []  # target tokens per second, of each step
        self.epochs: list[dict[str, float | None]] = []  # validation scores
        self.seconds, self.memory, self.tokens = 0.0, 0.0, 0
        self._last: float | None = None
        self._steps = 0
        self._device, self._clock = torch.device("cpu"), time.perf_counter
        self._started = self._clock()

    def state_dict(self) -> dict[str, Any]:
        return {
            "rates": self.rates,
            "epochs": self.epochs,
            "seconds": self._elapsed(),
            "memory": self._peak(),
            "tokens": self.tokens,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rates, self.epochs = list(state_dict["rates"]), list(state_dict["epochs"])
        self.seconds, self.memory, self.tokens = state_dict["seconds"], state_dict["memory"], state_dict["tokens"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._device, self._clock = pl_module.device, clock(pl_module.device.type)
        self._started = self._clock()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._last = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PairBatch, batch_idx: int
    ) -> None:
        tokens, now = 0 if batch.tgt_lengths is None else int(batch.tgt_lengths.sum()), self._clock()
        self._steps += 1
        self.tokens += tokens
        if self._last is not None and self._steps > WARM_UP:
            self.rates.append(tokens / (now - self._last))
        self._last = now

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._last = None
        if not trainer.sanity_checking:
            scores = {
                key.removeprefix("val/"): float(x)
                for key, x in trainer.callback_metrics.items()
                if key.startswith("val/")
            }
            self.epochs.append({key: value if math.isfinite(value) else None for key, value in scores.items()})

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        report = {
            "epochs": trainer.current_epoch,
            "steps": trainer.global_step,
            "tokens": self.tokens,
            "seconds": round(self._elapsed(), 1),
            "tokens_per_second": round(statistics.median(self.rates), 1) if self.rates else None,
            "peak_memory_mb": round(self._peak(), 1) or None,
            "validation": self.epochs,
        }
        if trainer.is_global_zero and not is_fast_dev_run(trainer):
            write_atomically(Path(trainer.default_root_dir) / TRAINING, json.dumps(report, indent=2) + "\n")

    def _elapsed(self) -> float:
        return self.seconds + self._clock() - self._started

    def _peak(self) -> float:
        """Peak MB: of the GPU's tensors, or of the whole process on a CPU; 0 if the system does not say."""
        if self._device.type == "cuda":
            return max(self.memory, torch.cuda.max_memory_allocated(self._device) / 1e6)
        if resource is None:
            return self.memory
        unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
        return max(self.memory, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6)


def attention_measures(attention: Tensor) -> dict[str, float] | None:
    """Measures of one sentence's weights (T, S), with each row divided by its sum; rows without weight are skipped.

    Returns:
            None if no row is left, else the means over the rows of

            entropy: -sum_s a_ts log a_ts, in nats.
            relative_entropy: the same divided by log S: 0 is one token, 1 is uniform (0 if S is 1).
            band: share of the weight on source tokens s (from 1, like t) with |t S / T - s| <= max(1, S / 10).
            uniform_band: `band` for uniform weights.
    """
    attention = attention.double()
    steps, length = attention.shape
    sums = attention.sum(-1)
    kept = sums > 0
    if not kept.any():
        return None
    weights = attention[kept] / sums[kept].unsqueeze(-1)
    entropy = -torch.special.xlogy(weights, weights).sum(-1).mean().item()
    t = torch.arange(1, steps + 1, dtype=torch.float64).unsqueeze(1)
    s = torch.arange(1, length + 1, dtype=torch.float64)
    near = ((t * length / steps - s).abs() <= max(1.0, BAND * length) + 1e-9).double()[kept]
    return {
        "entropy": abs(entropy),
        "relative_entropy": abs(entropy) / math.log(length) if length > 1 else 0.0,
        "band": (weights * near).sum(-1).mean().item(),
        "uniform_band": near.mean(-1).mean().item(),
    }


def mean_attention_measures(translations: Iterable[Translation]) -> dict[str, float] | None:
    """Means over sentences of `attention_measures`, rounded; None for a model without attention."""
    found = [
        attention_measures(out.attention) for out in translations if out.attention is not None and len(out.attention)
    ]
    found = [measures for measures in found if measures is not None]
    return {key: round(statistics.fmean(m[key] for m in found), 4) for key in found[0]} if found else None


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


def load_class(class_path: str) -> Any:
    """The class of a dotted path in a recipe.

    Raises:
        ValueError: there is none.
    """
    module, _, name = class_path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"there is no class {class_path}: {error}") from error


def load_data(settings: Mapping[str, Any]) -> Any:
    """The data module of a recipe's `data:`, with its files in place.

    Raises:
        ValueError: it is no data module of translations, or files are missing.
    """
    cls = load_class(settings["class_path"])
    try:
        data = cls(**(settings.get("init_args") or {}))
    except TypeError as error:  # an argument that it does not have
        raise ValueError(f"data: {error}") from error
    if not hasattr(data, "test_sets"):
        raise ValueError(f"`zoo compare` compares translators, and {settings['class_path']} has no sentence pairs")
    data.fetch()
    return data


def evaluate(folder: str | Path) -> dict[str, Any]:
    """Evaluates a folder's best checkpoint on the validation set, and once on the first test set.

    Args:
        folder: has job.json, training.json and the checkpoints of zoo/comparison/jobs.py.

    Returns:
        The content of result.json.
    """
    folder = Path(folder)
    job = json.loads((folder / JOB).read_text(encoding="utf-8"))
    training = json.loads((folder / TRAINING).read_text(encoding="utf-8"))
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
        "hardware": _hardware(job["device"]),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    write_atomically(folder / RESULT, json.dumps(result, indent=2, allow_nan=False) + "\n")
    return result


def _hardware(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(0)
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


if __name__ == "__main__":
    keep_freed_memory()
    try:
        find_local_modules()
        with imported([]):
            evaluate(sys.argv[1])
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"zoo: error: {' '.join(str(error).split())}")
