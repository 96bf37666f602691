"""attention-zoo-runtime: what its wheel has, and that it works in an environment without torch."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from captions_fakes import picture
from serving_fakes import free_port

from zoo import cli
from zoo.cli import main
from zoo.commands.graphs import load_graphs
from zoo.utils import whole

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parent.parent
PACKAGING = ROOT / "packaging" / "runtime" / "pyproject.toml"
MOST = 1e6  # bytes of the wheel
STORY = "Tom saw Anna. Anna had a red ball. Tom took the ball from Anna."
ASKED = {  # a weight of each task, and what it is asked
    "luong_general.multi30k_en_de": ["A dog runs in the snow."],
    "show_attend_tell_soft.flickr8k": ["photo.png"],
    "structured_self_attention.sst2": ["a fine film"],
    "han.imdb": ["A good film. It is fun."],
    "key_value_predict.ptb": ["the company said"],
    "attention_over_attention.cbtlike_ne": ["--document", STORY, "--candidates", "Tom|Anna", "XXXXX had a ball."],
}
ABSENT = ("torch", "lightning", "torchvision", "torchmetrics", "jsonargparse")


def requirements(file, start):
    """Package -> requirement, of the first list after a line."""
    text = file.read_text(encoding="utf-8").partition(f"\n{start}")[2].partition("\n]")[0]
    return {found[1]: found[0] for found in re.finditer(r'"([\w-]+)(\[\w+\])?>=[\d.]+', text)}


def test_its_requirements_are_those_of_the_package():
    mine, all_of_them = (
        requirements(PACKAGING, "dependencies = ["),
        (ROOT / "pyproject.toml").read_text(encoding="utf-8"),
    )
    assert {"numpy", "onnxruntime", "tokenizers"} <= mine.keys() and not mine.keys() & {*ABSENT}
    assert all(f'{requirement}"' in all_of_them for requirement in mine.values())


def test_every_file_it_lists_is_there():
    listed = re.findall(
        r'^"\.\./\.\./([^"]+)" = "(?:zoo/)?([^"]+)"$', PACKAGING.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(listed) > 20 and all((ROOT / source).exists() for source, _ in listed)
    assert all(source in ("LICENSE", f"zoo/{target}", target) for source, target in listed)


@pytest.fixture
def runtime_only(tmp_path, monkeypatch):
    """This process takes itself for an installation of the runtime."""
    monkeypatch.setattr(whole, "PACKAGE", tmp_path)
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("verb", [verb for verb in cli.VERBS if verb not in whole.RUNTIME_VERBS])
def test_other_verbs_need_the_whole_package(runtime_only, verb, capsys):
    assert main([verb, "--help"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"zoo: error: zoo {verb} needs the whole package, and this is attention-zoo-runtime")
    assert said.endswith("pip install attention-zoo\n") and said.count("\n") == 1


def test_help_lists_what_there_is(runtime_only, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    said = capsys.readouterr().out
    assert "\n    predict " in said and "\n    serve " in said and "\n    fit " not in said


@pytest.mark.parametrize("options", [[], ["--runtime", "onnx"], ["--int8"]])
@pytest.mark.parametrize("name", ["luong_dot.dates", "hf-hub:me/model@main"])
def test_graphs_come_from_another_machine(runtime_only, name, options, capsys):
    assert main(["predict", name, "3 May 1995", *options]) == 2
    said = capsys.readouterr().err
    assert (
        f"there are no exported graphs of {name} here" in said and f": zoo export {name} graphs --format onnx" in said
    )


def test_an_unknown_name_without_the_package(runtime_only):
    with pytest.raises(ValueError, match="unknown model 'luong_dot.date'; nearest: luong_dot.dates"):
        load_graphs("luong_dot.date")


@pytest.mark.parametrize("name", ["load", "register", "register_score"])
def test_functions_of_the_whole_package(runtime_only, name):
    import zoo

    with pytest.raises(ValueError, match=rf"^zoo\.{name} needs the whole package"):
        getattr(zoo, name)("luong_dot.dates")


def test_both_in_one_place(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(whole, "PACKAGE", tmp_path)
    (tmp_path / "tasks").mkdir()
    assert main(["list"]) == 0 and capsys.readouterr().err == ""
    (tmp_path / "runtime_only").touch()
    assert main(["list"]) == 0
    assert capsys.readouterr().err == f"zoo: {whole.BOTH}\n"


# ---- its files in an environment of their own, without a registry ----


def _files_of(requirement, found):
    """Adds the installed files of a package and of all that it requires: package -> its top folders and files."""
    name = re.match(r"[\w.-]+", requirement)[0]
    if name in found:
        return
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:  # of another system
        return
    files = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
    found[name] = {distribution.locate_file(file) for file in files}
    for more in distribution.requires or ():
        if "extra ==" not in more:
            _files_of(more, found)


@pytest.mark.skipif(os.name == "nt", reason="links need permissions")
def test_its_files_alone_predict(tmp_path):
    """Those that the wheel lists, in a fresh environment with its requirements; the slow tests build the wheel."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = tmp_path.glob("venv/lib/python3*/site-packages")
    for source, target in re.findall(r'^"([^"]+)" = "([^"]+)"$', PACKAGING.read_text(encoding="utf-8"), re.MULTILINE):
        path, place = PACKAGING.parent / source, packages / target
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if path.is_dir() else shutil.copy)(path, place)
    required = {}
    for requirement in requirements(PACKAGING, "dependencies = ["):
        _files_of(requirement, required)
    for path in set().union(*required.values()):
        (packages / path.name).symlink_to(path)
    assert main(["export", "luong_dot.dates", str(tmp_path / "graphs"), "--format", "onnx"]) == 0
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [tmp_path / "venv" / "bin" / "python", "-m", "zoo"]
    run = [*command, "predict", "local-dir:graphs", "tuesday july 8 2008"]
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "") and "2008-07-08" in done.stdout
    code = "import importlib.util as u, sys; sys.exit(any(map(u.find_spec, sys.argv[1:])))"
    assert subprocess.run([command[0], "-c", code, *ABSENT], cwd=tmp_path, env=environment).returncode == 0


# ---- the real one ----


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment with nothing but the wheel, its requirements and its extras."""
    folder = tmp_path_factory.mktemp("runtime")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    built = [*pip, "wheel", "--no-deps", "--wheel-dir", folder, PACKAGING.parent]
    subprocess.run(built, check=True)
    (wheel,) = folder.glob("attention_zoo_runtime-*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", f"{wheel}[plots,serve]"], check=True)
    (folder / "photo.png").write_bytes(picture(0))

    def run(*args, exit_code=0, **options):
        done = subprocess.run(
            [python, *args], capture_output=True, text=True, encoding="utf-8", cwd=folder, env=environment, **options
        )
        assert done.returncode == exit_code, done.stderr
        return done.stdout if exit_code == 0 else done.stderr

    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"ZOO_CACHE": str(folder / "cache"), "PYTHONIOENCODING": "utf-8"}
    return SimpleNamespace(wheel=wheel, folder=folder, python=python, environment=environment, run=run)


@pytest.fixture(scope="module", params=ASKED)
def graphs(installed, request):
    """Exported graphs of each task."""
    folder = installed.folder / request.param
    assert main(["export", request.param, str(folder), "--format", "onnx"]) == 0
    return request.param


@pytest.mark.slow
def test_the_small_wheel(installed):
    assert installed.wheel.stat().st_size <= MOST
    names = [name for name in zipfile.ZipFile(installed.wheel).namelist() if name.startswith("zoo/")]
    assert "zoo/runtime_only" in names and "zoo/LICENSE" in names and "zoo/tasks/base.py" not in names
    assert not any("weights/" in name or "__pycache__" in name for name in names)
    code = "import sys, importlib.util as u; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    assert installed.run("-c", code, *ABSENT, "zoo.tasks", "zoo.models") == "[]\n"
    message = "zoo: error: zoo fit needs the whole package, and this is attention-zoo-runtime"
    assert installed.run("-m", "zoo", "fit", "--config", "luong_dot.dates", exit_code=2).startswith(message)
    assert "zoo.load needs the whole package" in installed.run("-c", "import zoo; zoo.load('han.imdb')", exit_code=1)


@pytest.mark.slow
def test_predictions_in_the_small_environment(installed, graphs, capsys):
    command = ["predict", f"local-dir:{graphs}", *ASKED[graphs]]
    answer = json.loads(installed.run("-m", "zoo", *command, "--json", "--html", "a.html", "--plot", "a.png"))
    with_torch = [str(installed.folder / word) if word == "photo.png" else word for word in ASKED[graphs]]
    capsys.readouterr()
    assert main(["predict", graphs, *with_torch, "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    same = answer.keys() & {"text", "label", "answer", "tokens"}
    assert same and all(answer[key] == expected[key] for key in same)
    assert answer.keys() == expected.keys()
    assert (installed.folder / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert (installed.folder / "a.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    code = "import sys, zoo.runtime as r; m = r.load(sys.argv[1]); print(m.task.verb, 'torch' in sys.modules)"
    assert re.fullmatch(r"\w+ False\n", installed.run("-c", code, graphs))


@pytest.mark.slow
def test_the_server_in_the_small_environment(installed):
    name = "luong_dot.dates"
    assert main(["export", name, str(installed.folder / name), "--format", "onnx"]) == 0
    command = [installed.python, "-u", "-m", "zoo", "serve", f"local-dir:{name}", "--port", str(free_port())]
    with subprocess.Popen(
        command,
        cwd=installed.folder,
        env=installed.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        try:
            address = next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
            body = json.dumps({"text": "tuesday july 8 2008"}).encode()
            request = urllib.request.Request(f"{address}/predict", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as response:
                assert json.load(response)["text"] == "2008-07-08"
        finally:
            server.terminate()
