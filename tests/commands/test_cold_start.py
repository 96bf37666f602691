"""The process of `zoo predict` imports only what a prediction needs, and answers as any other process does."""

import json
import subprocess
import sys

import pytest
from captions_fakes import picture
from lightning.pytorch import LightningModule

import zoo
from zoo.cli import main
from zoo.utils import purpose

pytestmark = pytest.mark.integration

SLOW = {
    "huggingface_hub",
    "jsonargparse",
    "lightning",
    "matplotlib",
    "scipy",
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.fsdp",
    "torch.onnx",
    "torchmetrics",
    "torchvision",
    "transformers",
    "zoo.data",
    "zoo.training",
}
TEXTS = {  # a weight of each task that reads text
    "transformer_tiny.multi30k_en_de": ["A dog runs.", "--n-best", "2"],
    "structured_self_attention.sst2": ["a fine film"],
    "structured_self_attention.sick": ["A dog runs.", "A dog sleeps."],
    "han.imdb": ["A good film. It is fun."],
    "key_value_predict.ptb": ["the company said"],
}
# Several commands in one process, as if each were the only one: with the arguments of the process.
ALL = """
import json, sys
from zoo.cli import main
for command in json.loads(sys.stdin.read()):
    sys.argv = ["zoo", *command]
    assert main() == 0
assert "lightning" not in sys.modules
"""


def run(*args, **options):
    done = subprocess.run([sys.executable, *args], capture_output=True, text=True, encoding="utf-8", **options)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("name", ["luong_general.multi30k_en_de", "show_attend_tell_soft.flickr8k"])
def test_a_prediction_imports_nothing_slow(name, tmp_path):
    model, photo = zoo.load(name), tmp_path / "photo.png"
    photo.write_bytes(picture(0))
    given = "A dog runs." if model.task.input == "text" else str(photo)
    done = run("-X", "importtime", "-m", "zoo", "predict", name, given)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert {"torch", "tokenizers", f"zoo.verbs.{model.task.name}"} <= imported  # else nothing was measured
    parents = {".".join(parts[:n]) for parts in (name.split(".") for name in imported) for n in range(1, 4)}
    assert not parents & SLOW
    assert done.stdout == getattr(model, model.task.verb)([given])[0].text + "\n"


def test_answers_without_lightning(tmp_path, capsys):
    (tmp_path / "photo.png").write_bytes(picture(0))
    (tmp_path / "story.txt").write_text("Tom saw Anna. Anna had a red ball. Tom took the ball from Anna.")
    asked = {
        **TEXTS,
        "show_attend_tell_soft.flickr8k": [str(tmp_path / "photo.png")],
        "attention_over_attention.cbtlike_ne": [
            *("--document", str(tmp_path / "story.txt"), "--candidates", "Tom|Anna"),
            "XXXXX had a ball.",
        ],
    }
    assert {zoo.load(name).task for name in asked} == {zoo.load(name).task for name in zoo.list_models()}
    commands = [["predict", name, "--json", *arguments] for name, arguments in asked.items()]
    answers = run("-c", ALL, input=json.dumps(commands)).stdout
    assert [main(command) for command in commands] == [0] * len(commands)
    assert answers == capsys.readouterr().out and answers.count("\n") >= len(commands)


def test_a_caller_from_python_gets_lightning_modules():
    code = "from zoo.cli import main; main(['predict', 'luong_dot.dates', '3 May 2020'])\n"
    code += "import zoo; from lightning.pytorch import LightningModule\n"
    code += "print(isinstance(zoo.load('luong_dot.dates'), LightningModule))"
    assert run("-c", code).stdout == "2020-05-03\nTrue\n"


def test_lightning_that_is_there_is_used(monkeypatch):
    monkeypatch.setattr(purpose, "_predicts", True)
    assert not purpose.predicts_only()
    monkeypatch.delitem(sys.modules, "lightning.pytorch")
    assert purpose.predicts_only()


@pytest.mark.parametrize("attribute", ["device", "dtype"])
def test_the_plain_module_has_what_lightning_has(attribute):
    model = zoo.load("luong_dot.dates")
    assert isinstance(model, LightningModule)
    assert getattr(model, attribute) == getattr(LightningModule, attribute).fget(model)
