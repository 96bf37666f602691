"""What the package needs at least: how much it adds to torch and Lightning, and what it does without its extras."""

import importlib.metadata as metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer
from packaging.requirements import Requirement
from PIL import Image

from zoo import plots
from zoo.data import Dates
from zoo.metrics import CorpusScore, moses_lowercase
from zoo.models.luong import LuongNMT
from zoo.utils.extras import EXTRAS, require

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE, OPTIONAL = PROJECT["dependencies"], PROJECT["optional-dependencies"]
GIVEN = ("torch", "lightning", "torchvision", "torchmetrics", "huggingface-hub", "pytest")
UNTESTED = {"backbones", "encoder"}  # 23 and 90 MB of weights that no test reads
MOST, MOST_MB = 7, 60


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(requirements):
    """Names of all distributions that the requirements bring with them here, those that are not installed included."""
    seen, todo = {}, [Requirement(text) for text in requirements]
    while todo:
        wanted = todo.pop()
        name, known = canonical(wanted.name), seen.get(canonical(wanted.name))
        if known is not None and wanted.extras <= known:
            continue
        extras = seen[name] = (known or set()) | wanted.extras
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for line in map(Requirement, lines):
            if line.marker is None or any(line.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                todo.append(line)
    return set(seen)


def megabytes(name):
    files = (file.locate() for file in metadata.files(name))
    return sum(file.stat().st_size for file in files if file.exists()) / 1e6


# ---- requirements ----


def test_the_core_adds_little():
    sizes = {name: megabytes(name) for name in closure(CORE) - closure(GIVEN)}
    found = ", ".join(f"{name} {size:.1f} MB" for name, size in sorted(sizes.items()))
    assert len(sizes) <= MOST, f"the core adds {len(sizes)} distributions, at most {MOST} are allowed: {found}"
    assert sum(sizes.values()) <= MOST_MB, (
        f"the core adds {sum(sizes.values()):.1f} MB, at most {MOST_MB} are allowed: {found}"
    )
    assert {"safetensors", "tokenizers"} <= sizes.keys()  # else nothing was measured


def test_bounds():
    requirements = [Requirement(text) for text in (*CORE, *(text for extra in OPTIONAL.values() for text in extra))]
    (lightning,) = (r.specifier for r in requirements if r.name == "lightning")
    assert not any(lightning.contains(version) for version in ("2.6.2", "2.6.3", "2.6.5"))
    assert lightning.contains("2.6.6") and lightning.contains("3.0")
    assert {bound.operator for r in requirements for bound in r.specifier} == {">="}


def test_extras_are_those_of_the_project():
    names = {extra: set(texts) for extra, texts in OPTIONAL.items()}
    tested = next(Requirement(text) for text in OPTIONAL["test"] if text.startswith("attention-zoo["))
    assert {Requirement(text).name for text in names.pop("dev")} == {"attention-zoo", "ruff", "pyright", "pre-commit"}
    # zoo/bridges imports neither of them
    assert {Requirement(text).name for text in names.pop("bridges")} == {"captum", "bertviz"}
    assert "sphinx" in {Requirement(text).name for text in names.pop("docs")}
    assert {Requirement(text).name for text in names.pop("test")} == {
        "attention-zoo",
        "pytest",
        "pytest-xdist",
        "hypothesis",
        "playwright",
        "axe-playwright-python",
        "gensim",  # of word2vec; hatchling drops the condition of an extra named in another one
        "scipy",
    }
    assert names == {extra: set(packages) for extra, packages in EXTRAS.items()}
    assert tested.extras == names.keys() - UNTESTED - {"word2vec"}


def test_every_import_is_declared():
    imported = set()
    for file in (ROOT / "zoo").rglob("*.py"):
        imported |= set(re.findall(r"^ *(?:import|from) (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))
    owners = metadata.packages_distributions()
    third_party = {name for name in imported if name in owners and name not in sys.stdlib_module_names} - {"zoo"}
    declared = {canonical(Requirement(text).name) for text in CORE} | closure(
        text for extra in EXTRAS for text in OPTIONAL[extra]
    )
    undeclared = {name for name in third_party if not declared & set(map(canonical, owners[name]))}
    assert undeclared == set() and {"torch", "PIL", "yaml", "sacrebleu"} <= third_party


# ---- what is missing is said in one line, before any work ----


@pytest.fixture
def without(monkeypatch):
    """Hides packages from `import`."""
    return lambda *names: [monkeypatch.setitem(sys.modules, name, None) for name in names]


def test_require(without):
    without("sacrebleu", "sacremoses")
    with pytest.raises(ValueError) as caught:
        require("scores", "BLEU")
    assert str(caught.value) == (
        'BLEU needs sacrebleu, sacremoses; install with: pip install "sacrebleu>=2.4" "sacremoses>=0.1"'
    )
    assert require("plots", "a picture") is None


PICTURES = {
    "alignment_heatmap": (["a"], ["b"], torch.ones(1, 1)),
    "heads_heatmap": (["a"], ["b"], torch.ones(1, 1, 1), [""]),
    "caption_picture": (Image.new("RGB", (8, 8)), ["a"], torch.ones(1, 1, 1)),
    "document_picture": ([["a"]], [1.0], [[1.0]]),
    "hops_picture": ([["a"]], [[[1.0]]]),
    "look_back_picture": (["a"], torch.ones(1, 1)),
    "reading_picture": (["a"], [1.0], ["b"], None, {"a": 1.0}),
}


@pytest.mark.parametrize("name", [name for name in plots.__all__ if not name.endswith("_html")])
def test_a_picture_needs_plots(name, without, tmp_path):
    without("matplotlib")
    with pytest.raises(ValueError) as caught:
        getattr(plots, name)(tmp_path / "x.png", *PICTURES[name])
    assert str(caught.value) == 'a picture of attention needs matplotlib; install with: pip install "matplotlib>=3.8"'
    assert not any(tmp_path.iterdir())


def test_scores_of_translations_need_scores(without):
    without("sacremoses")
    with pytest.raises(ValueError, match=r"^scoring translations needs sacremoses; install with: .* \"sacremoses>="):
        CorpusScore("de")
    with pytest.raises(ValueError, match=r"^Moses tokenisation needs sacremoses; install with: .* \"sacremoses>="):
        moses_lowercase(["a"], "da")


class Sentences(Dates):
    """Pairs that are scored as sentences are."""

    exact_only = False


class Counting(LuongNMT):
    steps = 0

    def training_step(self, batch, batch_idx):
        type(self).steps += 1
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize(
    "verb, what", [("fit", "after each epoch"), ("validate", "of translations"), ("test", "of translations")]
)
def test_a_translator_is_trained_only_if_it_can_be_scored(verb, what, without, tmp_path):
    without("sacrebleu")
    sizes = {"src_vocab_size": 80, "tgt_vocab_size": 20, "embedding_size": 4, "hidden_size": 4}
    data = Sentences(train_size=20, val_size=4, test_size=4, batch_size=10)

    def run(**options):
        quiet = {
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "logger": False,
            "enable_checkpointing": False,
        }
        trainer = Trainer(accelerator="cpu", max_epochs=1, default_root_dir=tmp_path, **quiet, **options)
        getattr(trainer, verb)(Counting(**sizes), datamodule=data)

    Counting.steps = 0
    with pytest.raises(ValueError, match=rf"^the BLEU {what} needs sacrebleu; install with: .* \"sacrebleu>="):
        run(num_sanity_val_steps=0)
    assert Counting.steps == 0
    if verb == "fit":  # nothing is scored
        run(limit_val_batches=0)
        assert Counting.steps == 2


# ---- a process in which nothing but the core and the six can be imported ----

PRELUDE = """
import importlib, importlib.machinery, json, re, sys
given = json.loads(sys.argv[1])
packages, distributions = set(given["packages"]), set(given["distributions"])

class Minimal(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in packages else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *args, **options):
        found = super().find_distributions(*args, **options)
        return (d for d in found if re.sub(r"[-_.]+", "-", d.metadata["Name"] or "").lower() not in distributions)

sys.meta_path = [Minimal if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
"""
MODULES = """
import time
start = time.process_time()
import zoo
seconds, heavy = time.process_time() - start, "torch" in sys.modules
import pkgutil
names = [m.name for m in pkgutil.walk_packages(zoo.__path__, "zoo.") if m.name != "zoo.__main__"]
for name in names:
    importlib.import_module(name)
print(json.dumps({"seconds": seconds, "torch": heavy, "modules": names, "loaded": sorted(packages & sys.modules.keys())}))
"""
WORK = r"""
import torch, zoo
from pathlib import Path
from PIL import Image
from zoo import registry
from zoo.cli import main
from zoo.metrics import CaptionScores
from zoo.plots import caption_html, reading_html
assert zoo.load("luong_dot.dates").translate("tuesday july 8 2008").text == "2008-07-08"
assert main(["list"]) == main(["info", "han.imdb"]) == 0
assert main(["predict", "structured_self_attention.trec6", "Who wrote Faust ?", "--json", "--html", "hops.html"]) == 0
caption_html(Image.new("RGB", (8, 8)), ["a"], torch.ones(1, 2, 2), "a")
reading_html(["a", "b"], [0.5, 0.5], ["c"], None, {"a": 1.0}, "a")
result = zoo.load("luong_dot.dates").translate("tuesday july 8 2008")
assert "<html" in result.to_html() and "<html" not in result._repr_html_() and "<article" in zoo.page([result] * 2)
score = CaptionScores()
score.update(["a dog runs here"], [["a dog runs here"]])
assert score.compute()["bleu_4"] > 99.9
Path("train.tsv").write_text("text\tlabel\n" + "".join(f"a good film {n}\tyes\na bad film {n}\tno\n" for n in range(30)))
recipe = ["--config", given["recipes"] + "/finetune_classification.yaml", "--data.train", "train.tsv"]
quick = ["--trainer.fast_dev_run", "true", "--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]
assert main(["fit", *recipe, *quick, "--model.name", "structured_self_attention.trec6", "--data.split_sentences", "false"]) == 0

dates = ["--config", given["recipes"] + "/luong_dot.dates.yaml", "--data.train_size", "80", "--data.val_size", "9"]
dates += ["--data.test_size", "9", "--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]
assert main(["fit", *dates, "--trainer.max_epochs", "1"]) == 0
assert main(["validate", *dates, "--ckpt_path", "best"]) == main(["test", *dates, "--ckpt_path", "best"]) == 0

def not_loaded(*args):
    raise AssertionError("it was loaded first")

registry.load = not_loaded
Path("before").mkdir()
codes = [
    main(["predict", "han.imdb", "a", "--plot", "before/x.png"]),
    main(["serve", "luong_dot.dates"]),
    main(["export", "luong_dot.dates", "before/out", "--format", "onnx"]),
    main(["fit", "--config", given["recipes"] + "/luong_general.tatoeba_de_en.yaml", "--trainer.default_root_dir", "before"]),
]
assert codes == [2, 2, 2, 2], codes
assert not any(Path("before").iterdir())
assert not packages & sys.modules.keys()
"""
LINES = [
    'zoo: error: --plot needs matplotlib; install with: pip install "matplotlib>=3.8"',
    'zoo: error: `zoo serve` needs uvicorn; install with: pip install "uvicorn>=0.30"',
    'zoo: error: export to ONNX needs onnx, onnxscript, onnxruntime; install with: pip install "onnx>=1.19" '
    '"onnxscript>=0.5.4" "onnxruntime>=1.22"',
    "zoo: error: the BLEU after each epoch needs sacrebleu, sacremoses; install with: pip install "
    '"sacrebleu>=2.4" "sacremoses>=0.1"',
]


def hidden():
    """Import packages and distributions that the core and the six do not bring."""
    allowed = closure([*CORE, *GIVEN]) | {"attention-zoo"}
    owners = {package: set(map(canonical, names)) for package, names in metadata.packages_distributions().items()}
    distributions = {name for names in owners.values() for name in names} - allowed
    packages = {package for package, names in owners.items() if not names & allowed}
    tested = EXTRAS.keys() - UNTESTED
    assert {Requirement(text).name for extra in tested for text in EXTRAS[extra]} <= packages
    return {
        "packages": sorted(packages - {"zoo", "tests"}),
        "distributions": sorted(distributions),
        "recipes": str(ROOT / "recipes"),
    }


@pytest.fixture(scope="module")
def minimal(tmp_path_factory):
    """The folder in which such a process was, and how it ended."""
    folder = tmp_path_factory.mktemp("minimal")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ZOO_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", PRELUDE + MODULES + WORK, json.dumps(hidden())]
    return folder, subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=300)


def test_every_module_imports_without_extras(minimal):
    _, run = minimal
    assert run.stdout.startswith("{"), run.stderr
    found = json.loads(run.stdout.splitlines()[0])
    assert found["seconds"] < 0.2 and not found["torch"]
    assert {
        "zoo.plots.page",
        "zoo.metrics.corpus",
        "zoo.serving.server",
        "zoo.onnx_export",
        "zoo.training.lightning_cli",
    } <= set(found["modules"])
    assert found["loaded"] == []


def test_it_works_without_extras(minimal):
    folder, run = minimal
    assert run.returncode == 0, run.stderr[-3000:]
    assert [line for line in run.stderr.splitlines() if line.startswith("zoo: ")] == LINES
    assert "Traceback" not in run.stderr
    assert "<html" in (folder / "hops.html").read_text(encoding="utf-8")
