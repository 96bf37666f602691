"""What the README shows works: its Python runs, its commands are understood, its pictures, links and names exist."""

import re
import shlex
from pathlib import Path

import pytest

from zoo import cli, registry
from zoo.cli import main

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def blocks(text, language):
    """Code between ```language and ```."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(text):
    """Arguments of each `zoo ...` line of the bash and of the indented blocks."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = ["\n".join(line[4:] for line in prose.splitlines() if line.startswith("    "))]
    lines = "\n".join(blocks(text, "bash") + indented).replace("\\\n", " ").splitlines()
    split = [shlex.split(line, comments=True) for line in lines]
    return [args[1:] for args in split if args and args[0] == "zoo"]


def missing_files(text, root):
    """Pictures, relative links, recipes and Python files that the text names and that do not exist."""
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    named = re.findall(r"\b(?:recipes/[\w.]+\.yaml|(?:zoo|tests)/[\w/]+\.py)\b", text)
    return sorted({path for path in [*links, *named] if path and not (root / path).exists()})


def unknown_names(text, names):
    """Words that look like the name of a weight, and are none."""
    heads = "|".join(sorted({re.escape(re.split(r"[._]", name)[0]) for name in names}))
    found = re.findall(rf"(?<![\w./])(?:{heads})\w*\.\w+(?!\w*\.(?:py|yaml|png|md))\b", text)
    return sorted(set(found) - set(names))


TEXT = README.read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in that looks like the repository to commands."""
    for name in ("recipes", "model_cards"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("code", blocks(TEXT, "python"))
def test_python_runs(code, folder):
    exec(compile(code, str(README), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("args", commands(TEXT), ids=" ".join)
def test_command(args, folder, capsys):
    """Cheap ones run; of the others the arguments are read."""
    verb = args[0]
    if verb in cli.TRAINING:
        if "--weights" in args:
            registry.entry(args[args.index("--weights") + 1])
        with pytest.raises(SystemExit) as end:
            main([*args, "--print_config"])
        assert end.value.code in (None, 0) and re.search(r"class_path: zoo\.(?:models\.|load\b)", capsys.readouterr().out)
    elif verb == "export" or args[1:] and args[1].startswith("local-dir:"):  # of a training that was not done here
        cli._parser().parse_args(args)
    else:
        assert main(args) == 0 and capsys.readouterr().out.strip()


def test_the_table_is_that_of_the_cards(capsys):
    assert main(["list", "--markdown"]) == 0
    assert capsys.readouterr().out in TEXT, "put the output of `zoo list --markdown` under Weights"


def test_what_it_names_exists():
    assert missing_files(TEXT, ROOT) == []
    assert unknown_names(TEXT, registry.list_models()) == []


def test_it_opens_with_a_picture_and_has_both_commands():
    assert re.search(r"!\[.+\]\((.+\.png)\)", TEXT.split("\n## ")[0])
    first, second = blocks(TEXT, "bash")[:2]  # .ci/run runs the second
    assert "pip install" in first and "zoo predict" in first
    assert "pip install" in second and "pytest" in second
    assert blocks(TEXT, "python")
