"""What README and docs/ show works: Python prints what it says, commands run on small data, pictures, links and names exist."""

import csv
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import captions_fakes
import labeled_fakes
import pytest
import torch
import yaml
from hub_server import Client, Hub
from rebuild_cases import in_process

import zoo
from zoo import cli, registry
from zoo.cli import main
from zoo.commands import cards
from zoo.data.common.published import Published

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
DOCS = ROOT / "docs"
# page -> its text; cards and tables are copied there by the build (docs/conf.py) and have tests of their own
PAGES = {"README": TEXT} | {
    path.relative_to(DOCS).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if path.relative_to(DOCS).parts[0] not in ("cards", "recipes")
}

CARDS = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "model_cards").glob("*.md"))}

# ---- which commands there are ----

PROGRAMS = ("zoo", "python", "pytest", "pip", "curl", "torchrun", "srun")
SYNOPSIS = "command_line"  # the page whose block says what there is; nothing in it is a whole command
NOT_RUN = {  # beginning of commands -> why
    "pip install": "needs a registry; .ci/run does it",
    "pip wheel": "builds for a minute; tests/test_distribution.py does",
    "pytest": "would run this file again",
    "python benchmarks/": "measures the machine for minutes",
    "zoo demo": "waits for a browser, and exports a large model; tests/demo does",
    "zoo lesson check": "a fresh copy has no right answers; tests/lessons/test_command.py does",
    "zoo explain han.imdb --certificate": "measures for minutes; tests/commands/test_explain.py does",
    "zoo compare --search": "ten trainings more; tests/comparison does",
    "zoo compare --pairs": "trains on more pairs than there are here; tests/comparison does",
    "zoo compare --recipes FOLDER": "a folder of the reader; tests/comparison does",
    "zoo calibrate": "a model of one short epoch has no right answers; tests/commands/test_honest_predictions.py does",
}
# pages that start processes, or export large models
SLOW = {
    "guides/compare",
    "guides/ctranslate2",
    "guides/own_mechanism",
    "guides/several_gpus",
    "guides/onnx",
    "guides/serving",
}
CONTINUED = ["guides/onnx"]  # pages whose Python reads what their commands wrote
AFTER = {
    "guides/publish": "guides/train",
    "guides/honest_predictions": "guides/train",
}  # pages that use what another one wrote
WORDS = {
    "NAME": "luong_dot.dates",
    "DATA": "data",
    "RECIPE.yaml": "recipes/luong_dot.dates.yaml",
    "FIRST_MACHINE": "127.0.0.1",
}


@dataclass(frozen=True)
class Command:
    """One command, and the page it stands on."""

    page: str
    args: tuple[str, ...]
    answer: str = ""  # what `zoo predict` prints, as the comment beside it says

    def __str__(self):
        return shlex.join(self.args)

    @property
    def why_not(self):
        return next((why for beginning, why in NOT_RUN.items() if str(self).startswith(beginning)), None)


def commands(text, page):
    """The commands in blocks without a language or of bash, on indented lines, and between backquotes.

    A sentence may name a command, as `zoo export`, which is not one to run.
    """
    names = {f"zoo {verb}" for verb in cli.VERBS}
    found, fence = [], None
    for line in text.replace("\\\n", " ").splitlines():
        shown = []
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
        elif fence is None and not line.startswith("    "):
            shown = [code for code in re.findall("`([^`]+)`", line) if " " in code and code not in names]
        elif fence in (None, "", "bash") and page != SYNOPSIS:
            shown = [line]
        found += [
            Command(page, tuple(shlex.split(part, comments=True)), _answer(part))
            for part in shown
            if part.split()[:1] and part.split()[0] in PROGRAMS
        ]
    return list(dict.fromkeys(found))


def _answer(line):
    return line.partition(" # ")[2].strip() if line.lstrip().startswith("zoo predict") else ""


COMMANDS = [command for page, text in PAGES.items() for command in commands(text, page)]


def blocks(text, language):
    """Code between ```language and ```."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def missing_files(text, folder):
    """Pictures, relative links, recipes and Python files that a text in `folder` names and that do not exist."""
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    named = re.findall(r"\b(?:recipes/[\w./]+\.yaml|(?:zoo|tests|benchmarks|examples)/[\w/]+\.py)\b", text)
    return sorted(
        {link for link in links if link and not (folder / link).exists()}
        | {path for path in named if not (ROOT / path).exists()}
    )


def unknown_names(text, names):
    """Words that look like the name of a weight, and are none."""
    heads = "|".join(sorted({re.escape(re.split(r"[._]", name)[0]) for name in names}))
    text = re.sub(r"\]\([^)]*\)", "", text)
    found = re.findall(rf"(?<![\w./])(?:{heads})\w*\.\w+(?!\w*\.(?:py|yaml|png|md))\b", text)
    return sorted(set(found) - set(names))


# ---- a user ----


def captioned(text):
    """Files that a page shows: name -> content."""
    found = re.findall(r"^```\{code-block\} \w+\n:caption: (\S+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return dict(found)


def write_files(folder):
    """What the commands find: the repository's recipes, and a user's small files under the names that the pages give
    them.
    """
    for name in ("recipes", "model_cards", "examples", "docs"):
        (folder / name).symlink_to(ROOT / name)
    lines = [f"{n} dogs run over the {word} street in the snow" for n in range(12) for word in ("wide", "small", "old")]
    for name, part in (("train", lines), ("val", lines[:4])):
        (folder / f"{name}.en").write_text("".join(f"{line}\n" for line in part))
        (folder / f"{name}.de").write_text("".join(f"{line[::-1]}\n" for line in part))
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines * 4))
    for name in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        for language in ("en", "de"):
            source = folder / f"{'train' if name == 'train' else 'val'}.{language}"
            captions_fakes.write(folder / f"data/multi30k/{name}.{language}", source.read_bytes())
    rng = labeled_fakes.random.Random(0)
    for name in ("train.tsv", "test.tsv", "reviews.tsv"):
        rows = [(labeled_fakes.document(rng, n % 3).replace("\n", " "), f"class{n % 3}") for n in range(60)]
        labeled_fakes.table(folder / name, ("text", "label"), rows)
    for name in ("train.csv", "test.csv"):
        with open(folder / name, "w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
    (folder / "book.txt").write_text("".join(f"The old man and {line}.\n" for line in lines * 4))
    (folder / "words.txt").write_text("".join(f"the old man and {line.lower()}\n" for line in lines * 4))
    questions = [
        ("Ann met the dog. The dog ran home.", "Then XXXXX ran home.", "dog", "Ann|dog"),
        ("Bob saw Eve.", "XXXXX saw Eve.", "Bob", "Bob|Eve"),
    ]
    rows = [(f"{document} It was {n}.", *rest) for n in range(20) for document, *rest in questions]
    labeled_fakes.table(folder / "questions.tsv", ("document", "query", "answer", "candidates"), rows)
    rows = ["image\tcaption\n"]
    for images in captions_fakes.sample((24, 0, 0), captions=2).values():
        for name, (content, texts) in images.items():
            captions_fakes.write(folder / "photos" / name, content)
            rows += [f"{name}\t{text}\n" for text in texts]
    (folder / "captions.tsv").write_text("".join(rows))
    (folder / "photo.jpg").write_bytes(captions_fakes.picture(1, 300, 200, "JPEG"))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


class User:
    """Somebody who types the commands of a page, one after the other, in a folder of their own."""

    def __init__(self, folder, remote):
        self.folder, self.remote = folder, remote
        self.words = WORDS | {"8000": free_port(), "29500": free_port()}
        self.server = None

    def run(self, command, capfd):
        """Runs one command; what it must have done is checked, and its output returned."""
        args = [
            re.sub("|".join(map(re.escape, self.words)), lambda found: self.words[found[0]], word)
            for word in command.args
        ]
        verb = args[1] if args[0] == "zoo" else args[0]
        if "fit" in args:
            return self.fit(args)
        if verb in cli.TRAINING:
            args += self.small(args)
        if verb == "rebuild" and "--list" not in args:
            args += ["--trainer.accelerator=cpu", "--trainer.max_epochs=1", "--data.train_size=64"]
            args += ["--data.val_size=9", "--data.test_size=9"]
        if verb == "compare" and not {"--report", "--recipes"} & {*args}:
            args += ["--only", "none", "dot", "--epochs", "1", "--device", "cpu"]
        if verb == "publish" and "--dry-run" not in args:
            return self.publish(args)
        if verb == "serve":
            return self.serve(args)
        if verb == "curl":
            return self.curl(args)
        capfd.readouterr()
        if args[0] == "python":
            subprocess.run([sys.executable, *args[1:]], check=True, timeout=120)
        else:
            with pytest.MonkeyPatch.context() as patch:
                in_process(patch)  # of rebuild
                assert args[0] == "zoo" and main(args[1:]) == 0
        out = capfd.readouterr().out
        assert not command.answer or out == command.answer + "\n"
        # a model of one short epoch may write an empty line
        assert out.strip() or (out and "local-dir:" in str(command)), f"{command} prints nothing"
        return out

    def small(self, args):
        """Settings for a training on small data, on the CPU, of one epoch more than there were."""
        options = {
            "--trainer.accelerator": "cpu",
            "--trainer.max_epochs": str(1 + ("last" in args)),
            "--trainer.enable_progress_bar": "false",
            "--trainer.enable_model_summary": "false",
            "--data.batch_size": "32",
        }
        if "--model.backbone" in args:
            options["--model.image_size"] = "64"
        if {"recipes/luong_dot.dates.yaml", "luong_dot.dates"} & {
            *args
        }:  # its data are made, as many as it asks for; it is small
            options |= {"--data.train_size": "64", "--data.val_size": "9", "--data.test_size": "9"}
        elif "fit" in args and "mean.yaml" not in args:
            options |= narrow(Path(args[args.index("--config") + 1]))
        return [word for option in options.items() for word in option]

    def fit(self, args):
        """Trains in this process, or in two as torchrun, SLURM or Lightning start them; there must be one more epoch
        then.
        """
        run = Path("runs") / args[args.index("--config") + 1].removeprefix("recipes/").removesuffix(".yaml")
        resumed = "--ckpt_path" in args and args[0] == "zoo"
        if run.exists() and not resumed:
            shutil.rmtree(run)
        before = steps(run) if resumed else 0
        args = [*args, *self.small(args)]
        if args[0] == "zoo" and "--trainer.devices" not in args:
            assert main(args[1:]) == 0
        else:
            self.processes(args)
        assert steps(run) > before and (run / "checkpoints/best.ckpt").is_file()
        assert len(list(run.glob("version_*"))) == 1 + resumed, "more than one process has written logs"

    def processes(self, args):
        """Runs a training in two processes, as many as there would be machines or else devices."""
        environments = [dict(os.environ)]
        machines = "--trainer.num_nodes" in args
        for option in ("--nproc-per-node", "--trainer.devices"):
            if option in args:
                args[args.index(option) + 1] = "1" if machines else "2"
        if args[0] == "srun":
            job = {
                "SLURM_JOB_NAME": "train",
                "SLURM_JOB_ID": "1",
                "SLURM_NTASKS": "2",
                "SLURM_NTASKS_PER_NODE": "1",
                "SLURM_LOCALID": "0",
            }
            job |= {"SLURM_NODELIST": "127.0.0.1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
            environments = [os.environ | job | {"SLURM_PROCID": rank, "SLURM_NODEID": rank} for rank in ("0", "1")]
            args = args[args.index("zoo") :]
            commands = [args, args]
        elif "--node-rank" in args:
            environments *= 2
            commands = [[*args], [*args]]
            commands[1][args.index("--node-rank") + 1] = "1"
        else:
            commands = [args]
        programs = {"zoo": [sys.executable, "-m", "zoo"], "torchrun": [sys.executable, "-m", "torch.distributed.run"]}
        running = [
            subprocess.Popen([*programs[words[0]], *words[1:]], env=environment, stderr=subprocess.PIPE, text=True)
            for words, environment in zip(commands, environments, strict=True)
        ]
        errors = [process.communicate(timeout=280)[1] for process in running]
        assert [process.returncode for process in running] == [0] * len(running), errors
        assert "MEMBER: 2/2" in "".join(errors)

    def publish(self, args):
        """Publishes to a Hub on this machine; the last line printed must load."""
        client = Client(self.remote, self.folder / "home")
        result = client.zoo(*args[1:])
        assert result.code == 0, result.err
        load = result.out.splitlines()[-1]
        assert re.fullmatch(r'zoo\.load\("hf-hub:my-name/my-model@[0-9a-f]{40}"\)', load)
        assert self.remote.repos["my-name/my-model"].private == ("--private" in args)
        loaded = client(lambda: eval(load, {"zoo": zoo}).translate("tuesday july 8 2008").text)
        assert loaded.value == zoo.load("local-dir:my_weights").translate("tuesday july 8 2008").text

    def serve(self, args):
        """Starts a server, in place of one that runs, and waits until it answers."""
        self.stop()
        self.server = subprocess.Popen([sys.executable, "-m", "zoo", *args[1:]], start_new_session=True)
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.words['8000']}/health", timeout=5).close()
                return
            except OSError:
                assert self.server.poll() is None, "the server has ended"
                time.sleep(0.1)
        raise AssertionError("the server does not answer")

    def curl(self, args):
        """Asks the server; the answer must be JSON, with as many results as were asked for."""
        if "@photo.jpg" in args:
            self.serve(["zoo", "serve", "show_attend_tell_soft.flickr8k", "--port", self.words["8000"]])
        run = subprocess.run(
            [args[0], "--fail-with-body", "-sS", *args[1:]], capture_output=True, text=True, timeout=60
        )
        assert run.returncode == 0, run.stdout + run.stderr
        answer, asked = json.loads(run.stdout), json.loads(args[args.index("-d") + 1]) if "-d" in args else {}
        assert answer and len(answer.get("results", [])) == len(asked.get("texts", [])), answer

    def stop(self):
        """Ends the server, and its processes."""
        if self.server is not None:
            self.server.send_signal(signal.SIGINT)
            try:
                self.server.wait(30)
            finally:
                if self.server.poll() is None:
                    os.killpg(self.server.pid, signal.SIGKILL)
            self.server = None


def narrow(recipe):
    """Options that make a model narrow, if its sizes are the recipe's and not those of a weight."""
    sizes = yaml.safe_load(recipe.read_text(encoding="utf-8"))["model"]["init_args"]
    return {
        f"--model.{name}": "16"
        for name in ("embedding_size", "hidden_size", "feature_size", "attention_size")
        if name in sizes
    }


def steps(run):
    """Optimiser steps of the last checkpoint of a run."""
    return torch.load(run / "checkpoints/last.ckpt", weights_only=True, map_location="cpu")["global_step"]


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    """Page -> who has worked through it."""
    found = {}
    with Hub() as remote:
        found[None] = remote
        yield found


def _worked_through(page, users, tmp_path_factory, patch, capfd):
    if page not in users:
        if page in AFTER:
            user = _worked_through(AFTER[page], users, tmp_path_factory, patch, capfd)
        else:
            folder = tmp_path_factory.mktemp(re.sub(r"\W+", "-", page))
            write_files(folder)
            for name, content in captioned(PAGES[page]).items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(content, encoding="utf-8")
            user = User(folder, users[None])
        patch.chdir(user.folder)
        patch.setenv("ZOO_DATA", str(user.folder / "data") if page == "guides/several_gpus" else "")
        patch.setenv("ZOO_CACHE", str(user.folder / "cache"))
        try:
            for command in COMMANDS:
                if command.page == page and command.why_not is None:
                    user.run(command, capfd)
        finally:
            user.stop()
        users[page] = user
    return users[page]


TO_RUN = list(dict.fromkeys(command.page for command in COMMANDS if command.why_not is None))


@pytest.mark.integration
@pytest.mark.parametrize(
    "page", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in TO_RUN]
)
def test_commands(page, users, tmp_path_factory, monkeypatch, capfd, nothing_registered):
    """All of a page, in its order, in one folder."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("zoo.tasks.captioning.load_backbone", lambda *arguments: None)  # a download
    _worked_through(page, users, tmp_path_factory, monkeypatch, capfd)


def test_commands_are_found():
    text = """a `zoo list --task reading` b `zoo list`, `zoo` and `zoo.load("x y")`
## Train it

    zoo fit --config a.yaml \\
        --data.x 1    # a comment
```
srun zoo fit
curl -d '{"a": 1}' b
zoo/layers/   text
```
```python
zoo list
```
"""
    found = [str(command) for command in commands(text, "page")]
    in_a_sentence = "zoo list --task reading"
    assert found == [in_a_sentence, "zoo fit --config a.yaml --data.x 1", "srun zoo fit", "curl -d '{\"a\": 1}' b"]
    assert [str(command) for command in commands(text, SYNOPSIS)] == [in_a_sentence]


def test_no_command_is_forgotten():
    """Each is run, or starts with what `NOT_RUN` names; and all that is named there occurs."""
    assert len(COMMANDS) > 35 and SLOW | AFTER.keys() | set(AFTER.values()) <= set(TO_RUN)
    for beginning in NOT_RUN:
        assert any(str(command).startswith(beginning) for command in COMMANDS), beginning
    verbs = {args.args[1] for args in COMMANDS if args.args[0] == "zoo" and args.why_not is None}
    assert verbs >= {"list", "info", "predict", "fit", "test", "export", "publish", "serve"}


def test_the_synopsis_names_every_verb():
    lines = [line for line in blocks(PAGES[SYNOPSIS], "")[0].splitlines() if line.startswith("zoo ")]
    named = {verb for line in lines for verb in re.match(r"zoo ((?:\w+ \| )*\w+)", line)[1].split(" | ")}
    actions = cli._parser()._subparsers._group_actions[0]
    assert named | {"validate"} == set(actions.choices)


def code_blocks(language, pages):
    return [
        pytest.param(code, id=f"{page}-{n}")
        for page, text in pages.items()
        for n, code in enumerate(blocks(text, language))
    ]


@pytest.mark.integration
@pytest.mark.parametrize(
    "code", code_blocks("python", {p: t for p, t in (PAGES | CARDS).items() if p not in CONTINUED})
)
def test_python_prints_what_stands_beside_it(code, tmp_path, monkeypatch, capsys):
    """What a block prints is its lines that begin with `# `."""
    monkeypatch.chdir(tmp_path)
    Path("docs").symlink_to(DOCS)
    exec(compile(code, "page", "exec"), {"__name__": "__main__"})
    stated = [line[2:] for line in code.splitlines() if line.startswith("# ")]
    assert capsys.readouterr().out.splitlines() == stated


@pytest.mark.slow
@pytest.mark.parametrize("page", CONTINUED)
def test_python_after_the_commands(page, users, tmp_path_factory, monkeypatch, capfd):
    """Blocks that read what the commands of their page wrote."""
    _worked_through(page, users, tmp_path_factory, monkeypatch, capfd)
    monkeypatch.chdir(users[page].folder)
    capfd.readouterr()
    for code in blocks(PAGES[page], "python"):
        exec(compile(code, "page", "exec"), {"__name__": "__main__"})
        stated = [line[2:] for line in code.splitlines() if line.startswith("# ")]
        assert capfd.readouterr().out.splitlines() == stated and stated


@pytest.mark.parametrize("code", code_blocks("yaml", PAGES))
def test_yaml_names_a_class_with_such_arguments(code):
    (part,) = yaml.safe_load(code)
    module, _, name = part["class_path"].rpartition(".")
    assert getattr(sys.modules.get(module) or __import__(module, fromlist=[name]), name)(**part["init_args"])


def test_the_tables_are_those_of_the_cards(capsys):
    assert main(["list", "--markdown"]) == 0
    table = capsys.readouterr().out
    shown = table.replace("](model_cards/", "](../model_cards/")
    assert shown in PAGES["weights"], "put the output of `zoo list --markdown` there"
    rows = [row for row in table.splitlines() if row in PAGES["README"].splitlines()]
    (first,) = [n for n, line in enumerate(PAGES["README"].splitlines()) if line == rows[0]]
    assert PAGES["README"].splitlines()[first:][: len(rows) + 1] == [*rows, ""], (
        "rows of `zoo list --markdown`, in its order"
    )
    names = [row.split("`")[1] for row in rows[2:]]
    for name in registry.list_models():  # the others are mechanisms of the comparison
        assert name in names or "One of the mechanisms" in " ".join(cards.read_card(name)[1].split()), name
    assert {registry.open_bundle(name).class_path for name in names} == {
        registry.open_bundle(name).class_path for name in registry.list_models()
    }


@pytest.mark.parametrize("page", PAGES)
def test_what_it_names_exists(page):
    folder = ROOT if page == "README" else (DOCS / page).parent
    assert missing_files(PAGES[page], folder) == []
    assert unknown_names(PAGES[page], registry.list_models()) == []


def test_a_page_names_every_published_data_set_and_its_files(tmp_path):
    (tmp_path / "Flickr8k.token.txt").touch()
    page = PAGES["guides/data"]
    for name in zoo.data.__all__:
        data_set = getattr(zoo.data, name)
        if issubclass(data_set, Published):
            assert f"`{name}`" in page, name
            for file in data_set(root=str(tmp_path)).files("train"):
                assert re.search(rf"[`/]{re.escape(file)}`", page), (name, file)


def test_every_paper_has_a_page_with_its_weights():
    models = {path.stem for path in (ROOT / "zoo/models").glob("*.py")} - {"__init__"}
    assert {page.split("/")[1] for page in PAGES if page.startswith("papers/")} == models | {"index"}
    for name in registry.list_models():
        paper = registry.entry(name)
        module = registry.open_bundle(name).class_path.split(".")[2]
        assert f"model_cards/{paper.name}.md" in PAGES[f"papers/{module}"], name


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(DOCS), str(tmp_path / "site")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    assert all((tmp_path / "site" / page).is_file() for page in pages)


def test_it_opens_with_a_picture_and_has_both_commands():
    assert re.search(r"!\[.+\]\((.+\.png)\)", TEXT.split("\n## ")[0])
    first, second = blocks(TEXT, "bash")[:2]  # .ci/run runs the second
    assert "pip install" in first and "zoo predict" in first
    assert "pip install" in second and "pytest" in second
    assert blocks(TEXT, "python") and len(TEXT.splitlines()) <= 135
