"""Small data, recipes and results of a comparison."""

import json
import random
from pathlib import Path

import sacrebleu
import yaml

from zoo.cli import main
from zoo.comparison.files import write_outputs


def fails(capsys, *args):
    """Runs a command that must fail; returns its one line and what it printed before."""
    assert main(["compare", *map(str, args)]) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("zoo: error: ")]
    assert len(lines) == 1 and "Traceback" not in err
    return lines[0].removeprefix("zoo: error: "), out


def options(place, *more):
    folders = {"--out": "out", "--recipes": "recipes", "--data.root": "data"}
    return [part for key, name in folders.items() for part in (key, str(place / name))] + [
        "--device",
        "cpu",
        "--threads",
        "1",
        *more,
    ]


def result(name, seed, bleu, epochs=6):
    attention = None if name == "none" else dict(entropy=1.2, relative_entropy=0.5, band=0.4, uniform_band=0.2)
    return {
        "name": name, "seed": seed, "settings": {"epochs": epochs, "recipe": "x"}, "parameters": 2_500_000,
        "training": dict(
            epochs=epochs, steps=10, tokens=600_000, seconds=9.0, tokens_per_second=5000.0 + seed, peak_memory_mb=800.0,
            validation=[dict(step=5, seconds=3.0 + seed, bleu=bleu - 5), dict(step=10, seconds=6.0 + seed, bleu=bleu)],
        ),
        "validation": {"bleu": bleu + 1, "attention": attention},
        "test": {"name": "test_2016_flickr", "bleu": bleu, "bleu_by_length": {"1-9": {"sentences": 5, "bleu": bleu}}},
        "decoding_sentences_per_second": 50.0, "beam_size": 5, "length_penalty": 1.0, "signature": "sig",
        "device": "cpu", "hardware": "CPU", "threads": 1,
    }  # fmt: skip


def write(out, *results):
    for result in results:
        folder = out / result["name"] / f"seed{result['seed']}"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(result))


def played_bleu(rate, dropout):
    """The score of a played training after its first epoch, less 1."""
    return random.Random(str({"--optimizer.lr": float(rate), "--model.dropout": float(dropout)})).uniform(5, 30)


def play_training(folder, options):
    """Writes what `zoo fit` leaves for 36 pairs in batches of 3, with scores that depend on its options only."""
    every = int(options.get("--trainer.check_val_every_n_epoch", 1))
    steps = int(options.get("--data.train_size", 36)) // 3 * every  # between two validations
    count = int(options["--trainer.max_epochs"]) // every
    settings = {key: float(options.get(key, 0)) for key in ("--optimizer.lr", "--model.dropout")}
    bleu = played_bleu(*settings.values())
    curve = [dict(step=steps * n, seconds=float(n), bleu=bleu + n) for n in range(1, count + 1)]
    found = result("", 1, bleu)["training"] | dict(epochs=count * every, steps=steps * count, validation=curve)
    (folder / "training.json").write_text(json.dumps(found))
    (folder / "base" / "checkpoints").mkdir(parents=True)
    (folder / "base" / "checkpoints" / "best.ckpt").touch()
    (folder / "base" / "version_0").mkdir()
    model, optimizer = (
        {"init_args": {name: value}} for name, value in zip(("dropout", "lr"), [*settings.values()][::-1])
    )
    config = {"model": model, "optimizer": optimizer, "root": options.get("--data.root")}
    (folder / "base" / "version_0" / "config.yaml").write_text(yaml.safe_dump(config))


def play_evaluation(job):
    """Writes what the evaluation leaves; the translations are references with some words left out."""
    rng = random.Random(job.name)
    for part, name in (("validation", "val"), ("test", "test_2016_flickr")):
        lines = (Path(job.plan.root) / "multi30k" / f"{name}.de").read_text(encoding="utf-8").splitlines()
        kept = [" ".join(word for word in line.split() if rng.random() < 0.8) for line in lines]
        write_outputs(job.folder / f"{part}.txt.gz", kept)
    bleu = round(sacrebleu.corpus_bleu(kept, [lines]).score, 2)  # of the test set
    training = json.loads((job.folder / "training.json").read_text())
    made = result(job.name, job.seed, bleu) | {"settings": job.settings, "training": training, "pairs": job.pairs or 36}
    (job.folder / "result.json").write_text(json.dumps(made))
