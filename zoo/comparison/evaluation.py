"""Evaluates the trained model of a job.

python -m zoo.comparison.evaluation FOLDER     evaluates the training of FOLDER/job.json, writes FOLDER/result.json
"""

import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from zoo.comparison.data import load_data
from zoo.comparison.files import JOB, OUTPUTS, RESULT, TRAINING, read_json, write_json, write_outputs
from zoo.comparison.measures import clock
from zoo.comparison.tasks.base import ComparedTask
from zoo.comparison.tasks.known import task_of
from zoo.registry import register
from zoo.tasks.precision import lacks_bf16
from zoo.training.checkpoints import model_of
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.cores import processor
from zoo.utils.modules import find_local_modules, imported, load_class


def _timed(task: ComparedTask, model: Any, inputs: Sequence[Any]) -> tuple[list[Any], float]:
    """The answers of a model, and the seconds that they took."""
    task.answer(model, inputs[:8])
    gc.collect()
    now = clock(model.device.type)
    start = now()
    return task.answer(model, inputs), now() - start


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
    task = task_of(type(model), model.config)
    data = load_data(job["data"], task)
    inputs, references = task.examples(data, "val")
    test_inputs, test_references = task.examples(data, "test")
    validation = task.answer(model, inputs)
    test, seconds = _timed(task, model, test_inputs)
    lines, test_lines = ([task.line(answer) for answer in answers] for answers in (validation, test))
    write_outputs(folder / OUTPUTS["validation"], lines)
    write_outputs(folder / OUTPUTS["test"], test_lines)
    result = {
        "name": job["name"],
        "seed": job["seed"],
        "settings": job["settings"],
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "pairs": job["settings"].get("pairs") or task.training_size(data),
        "parameters": sum(p.numel() for p in model.parameters()),
        "training": training,
        "validation": {
            **task.scores(lines, references, data),
            "attention": task.attention_measures(validation),
        },
        "test": {
            "name": data.test_names[0],
            **task.scores(test_lines, test_references, data),
            **task.parts(test_lines, test_inputs, test_references, data),
        },
        task.speed.keys[0]: round(task.amount(test) / max(seconds, 1e-9), 2),
        **task.settings(model, data),
        "device": job["device"],
        "at_once": job["at_once"],
        "hardware": _hardware(job["device"]),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    write_json(folder / RESULT, result)
    return result


def _hardware(device: str) -> str:
    """What computed; processors of one name differ in their instructions, and so in the precision of a training."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(0)
    return ", ".join((processor(), torch.backends.cpu.get_cpu_capability(), "no bf16" if lacks_bf16("cpu") else "bf16"))


if __name__ == "__main__":
    keep_freed_memory()
    try:
        find_local_modules()
        with imported([]):
            evaluate(sys.argv[1])
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"zoo: error: {' '.join(str(error).split())}")
