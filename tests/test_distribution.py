"""What the wheel carries, how large it is, and that it works without the clone."""

import os
import re
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest
from hub_server import Client, Hub

from zoo import registry
from zoo.cli import main
from zoo.commands import cards
from zoo.commands.recipes import RECIPES

ROOT = Path(__file__).parent.parent
MOST = 60e6  # bytes of a wheel; an index takes 100 MB
NEEDED = {"han.imdb", "luong_general.multi30k_en_de", "show_attend_tell_soft.flickr8k"}  # by README, guides and recipes
TASKS = {"translation", "captioning", "classification", "reading", "language modelling"}


def in_wheel():
    """The weights that pyproject.toml lists for wheel and sdist."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (listed,) = re.findall(r'\n\[tool.hatch.build\]\nexclude = \[\n +"/zoo/weights/\*",\n(.*?)\n\]', text, re.DOTALL)
    return [re.fullmatch(r' +"!/zoo/weights/([\w.]+)",', line)[1] for line in listed.splitlines()]


def test_the_wheel_has_a_weight_for_each_task_and_what_the_guides_use():
    names = in_wheel()
    assert names == sorted(set(names)) and set(names) <= registry.TABLE.keys() and set(names) >= NEEDED
    assert {cards.read_card(name)[0]["task"] for name in names} == TASKS
    assert any(name.endswith(".dates") for name in names)
    assert any(registry.open_bundle(name).init_args.get("pair") for name in names)  # pairs of sentences


def test_git_changes_no_line_ends(tmp_path):
    """Also where it is set to, as on Windows: `config.json` holds digests of the other files."""

    def git(*words):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)

    file, content = tmp_path / "config.json", b"{\n}\n"
    git("init")
    for name in [".gitattributes", ".gitignore"]:
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    file.write_bytes(content)
    git("add", ".")
    file.unlink()
    git("-c", "core.autocrlf=true", "checkout", "--", "config.json")
    assert file.read_bytes() == content


def test_the_weights_of_the_wheel_are_small():
    files = [file for name in in_wheel() for file in (registry.BUNDLED / name).iterdir()]
    texts = [file for folder in (cards.CARDS, RECIPES) for file in folder.rglob("*") if file.is_file()]
    # weights cannot be packed; outputs and curves of the comparisons can
    size = sum(file.stat().st_size for file in files) + sum(len(zlib.compress(file.read_bytes())) for file in texts)
    assert size <= MOST  # with the code, the wheel has a little more


# ---- the real one ----


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    (file,) = folder.glob("attention_zoo-*.whl")
    return file


def pip(*args):
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *args], check=True)


@pytest.mark.slow
def test_what_is_in_the_wheel(wheel):
    assert wheel.stat().st_size <= MOST
    files = {Path(name) for name in zipfile.ZipFile(wheel).namelist()}

    def below(folder):
        return {file.relative_to(folder) for file in files if file.is_relative_to(folder)}

    assert {file.parts[0] for file in below("zoo/weights")} == set(in_wheel())
    assert {Path("zoo/py.typed"), Path("zoo/__init__.pyi")} <= files  # editors complete and check by them
    for folder, mine in [("zoo/recipes", RECIPES), ("zoo/model_cards", cards.CARDS)]:
        assert below(folder) == {file.relative_to(mine) for file in mine.rglob("*") if file.is_file()}
    assert Path("zoo/pins.json") in files and not below("tests")


@pytest.mark.slow
def test_the_wheel_is_whole(wheel, tmp_path):
    """Installed somewhere else and used without the clone; what it lacks comes from a Hub on the loopback device."""
    site = tmp_path / "site"
    pip("install", "--no-deps", "--no-index", "--target", site, wheel)
    start = (
        f"import sys; sys.path[:] = [{str(site)!r}] + [p for p in sys.path if p not in ('', {str(ROOT)!r})]\n"
        f"import zoo; assert zoo.__file__.startswith({str(site)!r}), zoo.__file__\n"
    )
    with Hub() as remote:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= Client(remote, tmp_path / "home").environment

        def python(code, *args, exit_code=0):
            run = subprocess.run(
                [sys.executable, "-c", start + code, *args],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env=environment,
                timeout=300,
            )
            assert run.returncode == exit_code, run.stderr
            return run.stdout if exit_code == 0 else run.stderr

        def command(*args, **expected):
            return python("from zoo.cli import main; sys.exit(main(sys.argv[1:]))", *args, **expected)

        python("[zoo.load(name) for name in sys.argv[1:]]", *in_wheel())
        dates = "tuesday july 8 2008"
        assert command("predict", "luong_dot.dates", dates) == "2008-07-08\n"
        assert command("info", "han.reuters").startswith("---\n")  # a card without weights
        missing = command("predict", "luong_textbook.dates", dates, exit_code=2)
        assert missing.startswith(
            "zoo: error: luong_textbook.dates is neither in this installation nor on the Hub yet;"
        )

        assert len(command("recipes").splitlines()) == len([*RECIPES.glob("*.yaml")])
        assert command("recipes", "han.imdb") == (RECIPES / "han.imdb.yaml").read_text(encoding="utf-8")
        assert len(command("recipes", "comparison/*").splitlines()) == len([*RECIPES.glob("comparison/*.yaml")])
        small = ["--trainer.accelerator=cpu", "--data.train_size=64", "--data.val_size=9", "--data.test_size=9"]
        command("fit", "--config", "luong_dot.dates", "--trainer.max_epochs=1", *small)
        assert command("test", "--config", "luong_dot.dates", "--ckpt_path", "best", *small)
        unknown = command("compare", "--out", "out", "--only", "dott", exit_code=2)
        assert "no mechanism 'dott'; did you mean 'dot'?" in unknown

        publish = [sys.executable, "-m", "zoo", "publish", "--all", "me", "--pins", site / "zoo" / "pins.json"]
        subprocess.run(publish, check=True, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)}, timeout=600)
        assert len(remote.repos) == len(registry.TABLE)
        listed = command("list").splitlines()[1:]
        assert {line.split()[0] for line in listed if "on the Hub" in line} == registry.TABLE.keys() - {*in_wheel()}
        assert not any("not here" in line for line in listed)
        assert command("predict", "luong_textbook.dates", dates) == "2008-07-08\n"
        assert "already here" in command("download", "luong_textbook.dates")
        fetched = [line.split()[3] for line in command("download", "all").splitlines() if " fetched " in line]
        assert len(fetched) == len(registry.TABLE) - len(in_wheel()) - 1
        assert len(command("cache").splitlines()) == len(fetched) + 3  # the folder, the other one and the total
        assert "removed luong_textbook.dates " in command("cache", "clear")
        assert "holds no weights" in command("cache")
    assert main(["list"]) == 0  # the same as from the checkout
    assert sorted(path.name for path in site.iterdir() if path.suffix != ".dist-info") == ["bin", "zoo"]
