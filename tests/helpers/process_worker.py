"""What each process of tests/training/test_processes.py runs, callbacks that end a process in the middle of a training,
and what other tests run in a process of its own.
"""

import os
import sys
import time
from pathlib import Path

import captions_fakes
import cloze_fakes
import labeled_fakes
import torch
from fakes import schedule
from lightning import seed_everything
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from zoo.data import Cloze, Dates, ImageCaptions, LabeledText, PlainText
from zoo.data.common.cache import appearing_when_complete
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.tasks import hard_attention
from zoo.training.lightning_cli import AtomicCheckpointIO
from zoo.utils.allocator import keep_freed_memory

STEPS = 13  # of two batches: more than an epoch, whose last batch is smaller
TRAINED, EVALUATED = (
    (1, 1),
    (7, 1),
)  # items of validation and test: 7 is no multiple of two or three, of 1 most processes have none
TASKS = ("translation", "classification", "captioning", "reading")
_CREATES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Ends(Callback):
    """Ends the process `rank` at a step in one of several ways, while the others, if they are to, wait as for a
    collective operation.
    """

    def __init__(self, rank: int, how: str, others_wait: bool = False, step: int = 3) -> None:
        self.rank, self.how, self.others_wait, self.step = rank, how, others_wait, step

    def on_train_batch_start(self, trainer, *_) -> None:
        if trainer.global_step != self.step:
            return
        if trainer.global_rank != self.rank:
            time.sleep(300 * self.others_wait)
            return
        Path("ended").touch()
        if self.how == "exit":
            os._exit(1)
        raise RuntimeError("the disk is full")


class Signals(Callback):
    """Lets the process `rank` send itself a signal in the second epoch."""

    def __init__(self, rank: int, number: int) -> None:
        self.rank, self.number = rank, number

    def on_train_batch_start(self, trainer, *_) -> None:
        if trainer.current_epoch == 1 and trainer.global_rank == self.rank:
            Path("ended").touch()
            os.kill(os.getpid(), self.number)


class Losses(Callback):
    """Notes the loss of every batch, summed over the processes."""

    def __init__(self) -> None:
        self.found = []

    def on_train_batch_end(self, trainer, model, outputs, *_) -> None:
        loss = outputs["loss"].double()  # of the items of this process, summed
        self.found.append(trainer.strategy.reduce(loss, reduce_op="sum").item())


def write_files(folder):
    """Tables of texts, and images with captions, of the sizes that are trained on and evaluated."""
    for val, test in (TRAINED, EVALUATED):
        root = folder / f"{val}"
        for split, size in (("train", 90), ("val", val), ("test", test)):
            rng = labeled_fakes.random.Random(f"{split} {size}")
            rows = [(f"class{n % 3}", labeled_fakes.sentence(rng, n % 3)) for n in range(size)]
            labeled_fakes.table(root / f"{split}.tsv", ("label", "text"), rows)
            rows = []
            for n in range(size):
                a, b, c = rng.sample(cloze_fakes.NAMES, 3)
                query, answer = ((f"{a} met XXXXX", b), (f"XXXXX met {b}", a))[n % 2]
                rows.append((f"{a} met {b} and {b} saw {c} . " * (1 + n % 3), query, answer, "|".join((a, b, c))))
            labeled_fakes.table(root / f"questions.{split}.tsv", ("document", "query", "answer", "candidates"), rows)
        options = {"folder": "images", "captions": "captions.tsv"}
        captions_fakes.invent(ImageCaptions, options, root, captions_fakes.sample((24, val, test)))


def _data(task, root, world, batch):
    val, test = EVALUATED if root.name == str(EVALUATED[0]) else TRAINED
    options = {"batch_size": batch // world, "seed": 1}
    if task == "translation":
        data = Dates(train_size=200, val_size=val, test_size=test, **options)
        data.exact_only = False  # all scores of translations, not only the one of dates
        return data
    if task == "classification":
        return LabeledText("train.tsv", "val.tsv", "test.tsv", root=str(root), min_frequency=1, **options)
    if task == "reading":
        return Cloze(*(f"questions.{split}.tsv" for split in ("train", "val", "test")), root=str(root), **options)
    return ImageCaptions("images", "captions.tsv", root=str(root), min_frequency=1, **options)


def _model(task):
    # where gradients are nearly 0, Adam makes steps of their noise
    return schedule(_untrained(task), lr=1e-3 if task == "captioning" else 3e-3, warmup_steps=5)


def _untrained(task):
    options = {"dropout": 0.0}
    if task == "translation":
        return LuongNMT(80, 20, embedding_size=8, hidden_size=8, **options)
    if task == "classification":
        return StructuredSelfAttention(
            60, 3, embedding_size=8, hidden_size=8, attention_size=6, hops=2, mlp_size=8, **options
        )
    if task == "reading":
        return AttentionOverAttentionReader(40, num_unknown=0, embedding_size=8, hidden_size=8, **options)
    sizes = {"image_size": 32, "feature_size": 8, "embedding_size": 8, "hidden_size": 8, "attention_size": 4}
    return ShowAttendTell(40, "hard", layer="blocks.2", expected_share=0.0, beam_size=2, **sizes, **options)


def _written(folder):
    """A list to which every file and folder that this process makes or changes below `folder` is added."""
    found = []

    def note(event, args):
        if event == "open" and args[2] & _CREATES or event in ("os.mkdir", "os.rename", "os.remove"):
            paths = args[: 1 + (event == "os.rename")]
            found.extend(
                str(path)
                for path in paths
                if isinstance(path, (str, os.PathLike)) and Path(path).is_relative_to(folder)
            )

    sys.addaudithook(note)
    return found


def _look(weights):
    """Instead of a random position (N, K, L) another one for each caption of an image."""
    captions, positions = weights.shape[1:]
    index = torch.arange(captions, device=weights.device) % positions
    return torch.nn.functional.one_hot(index, positions).to(weights).expand_as(weights)


def _trainer(world, callbacks, root, logger=False):
    return Trainer(
        accelerator="cpu", devices=world, strategy="ddp" if world > 1 else "auto", max_steps=STEPS, accumulate_grad_batches=2,
        callbacks=callbacks, plugins=[AtomicCheckpointIO()], logger=logger, enable_checkpointing=bool(callbacks),
        val_check_interval=10, check_val_every_n_epoch=None,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=root, log_every_n_steps=1,
    )  # fmt: skip


def run(rank, world, port, folder):
    """Trains a model of each task as one of `world` processes, and evaluates one."""
    torch.set_num_threads(1)
    place = folder / f"of{world}"
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_RANK": str(rank), "NODE_RANK": "0"}
    os.environ |= {"ZOO_CACHE": str(place / "cache"), "ZOO_DATA": ""}
    written = _written(place)
    hard_attention.draw = _look  # who draws which random numbers depends on the number of processes
    results = {}
    for task in TASKS:
        seed_everything(7, verbose=False)
        model, losses = _model(task), Losses()
        saving = ModelCheckpoint(place / task, filename="best", monitor="val/loss", save_last=True)
        trainer = _trainer(world, [losses, saving], place, CSVLogger(place, f"logs_{task}"))
        trainer.fit(model, datamodule=_data(task, folder / str(TRAINED[0]), world, 12))
        weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        fitted = {name: value.item() for name, value in trainer.callback_metrics.items() if name.startswith("val/")}
        seed_everything(7, verbose=False)
        model, scores = _model(task), {}
        torch._foreach_mul_([p.data for p in model.parameters()], 3.0)  # it has more to say than after the training
        evaluator, data = (
            _trainer(world, [], place),
            _data(task, folder / str(EVALUATED[0]), world, 3 if world == 3 else 4),
        )
        for evaluate in (evaluator.validate, evaluator.test):
            scores |= evaluate(model, datamodule=data, verbose=False)[0]
        results[task] = {
            "losses": losses.found,
            "weights": weights,
            "fitted": fitted,
            "scores": scores,
            "steps": trainer.global_step,
        }
    torch.save({**results, "written": written}, folder / f"{world}.{rank}.pt")


def train_on_a_few_words(rank, world, port, folder):
    """Trains a language model as one of `world` processes; prints the weights' sum and the number of steps.

    Each process reads a part of the words, and the parts differ by a word, so that in the last step some have a label
    and some have none.
    """
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_RANK": str(rank), "NODE_RANK": "0"}
    os.environ |= {"ZOO_CACHE": str(folder / "cache"), "ZOO_DATA": ""}
    seed_everything(7, verbose=False)
    model = schedule(KeyValuePredictLM(**KeyValuePredictLM.tiny | {"vocab_size": 30}), warmup_steps=1)
    text = str(folder / "text.txt")
    data = PlainText(text, text, text, tokenizer="word", batch_size=1, segment=4, min_frequency=1)
    trainer = Trainer(
        accelerator="cpu", devices=world, strategy="ddp", max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0,
    )  # fmt: skip
    trainer.fit(model, datamodule=data)
    print(trainer.global_step, float(sum(p.double().abs().sum() for p in model.parameters())))


def page_faults():
    """Prints how many pages are mapped for ten tensors of 40 MB, first by default, then if freed memory is kept."""
    import resource  # not on Windows

    for prepare in (lambda: None, keep_freed_memory):
        prepare()
        for count in range(20):
            torch.empty(10 * 2**20).fill_(1)
            if count == 9:
                start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start)


def half_made(folder, name):
    """Begins to make a folder of the cache, and does not end."""
    with appearing_when_complete(Path(folder) / name) as unfinished:
        (unfinished / "x").write_text("x")
        time.sleep(60)


def imported(*names):
    """Prints which of some modules are there when all of the package that trains is."""
    first_use = sys.modules["first_use"]  # imported here it would come too late
    print(*(name for name in names if name in first_use.BEFORE))
