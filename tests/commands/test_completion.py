"""`zoo completion`: what a shell offers after a beginning."""

import shutil
import subprocess

import pytest

from zoo import cli, registry
from zoo.cli import main
from zoo.commands.recipes import shipped_recipes

TRY = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_zoo; printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The script of each shell: its file."""
    folder = tmp_path_factory.mktemp("completion")

    def script(shell):
        with pytest.MonkeyPatch.context() as patch, (folder / shell).open("w", encoding="utf-8") as file:
            patch.setattr("sys.stdout", file)
            assert main(["completion", shell]) == 0
        return folder / shell

    return {shell: script(shell) for shell in ("bash", "zsh", "fish")}


def _offered(scripts, folder, *words):
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    command = ["bash", "--norc", "-c", TRY, "bash", str(scripts["bash"]), "zoo", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    assert not done.stderr
    return done.stdout.split()


def test_bash_completes(scripts, tmp_path):
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "my_weights").mkdir()
    names, recipes = registry.list_models(), [name for name in shipped_recipes() if "/" not in name]
    cases = {
        ("",): list(cli._parser()._subparsers._group_actions[0].choices),
        ("pub",): ["publish"],
        ("predict", "han.i"): ["han.imdb"],
        ("info", ""): names,
        ("serve", "bahdanau"): ["bahdanau.multi30k_en_de"],
        ("download", "al"): ["all"],
        ("recipes", "comparison/no"): ["comparison/none"],
        ("fit", "--config", ""): [*recipes, "mine.yaml", "my_weights"],
        ("validate", "--config", "mi"): ["mine.yaml"],
        ("fit", "--config", "mine.yaml", "--weights", "tutorial"): ["tutorial_location.tatoeba_fra_en"],
        ("test", "--weights", ""): names,
        ("fit", "--log", ""): ["tensorboard", "wandb"],
        ("fit", "--ckpt_path", "l"): ["last"],
        ("fit", "--config", "mine.yaml", "--opt"): ["--optimizer.", "--optimizer.lr"],
        ("predict", "han.imdb", "--de"): ["--device"],
        ("predict", "han.imdb", "--device", "c"): ["cpu", "cuda"],
        ("predict", "han.imdb", "my"): ["my_weights"],
        ("export", "my"): ["my_weights"],
        ("completion", ""): ["bash", "zsh", "fish"],
        ("cache", ""): ["clear"],
        ("cache", "clear", "han.r"): ["han.reuters"],
        ("predict", "nothing.like"): [],
    }
    found = {words: _offered(scripts, tmp_path, *words) for words in cases}
    assert {words: sorted(offered) for words, offered in found.items()} == {
        words: sorted(expected) for words, expected in cases.items()
    }


def test_other_shells_are_given_the_same(scripts):
    bash, zsh, fish = (scripts[shell].read_text() for shell in ("bash", "zsh", "fish"))
    assert zsh.endswith(bash) and "bashcompinit" in zsh
    lines = fish.splitlines()
    for verb in cli._parser()._subparsers._group_actions[0].choices:
        here = [line for line in lines if f"__fish_seen_subcommand_from {verb}'" in line]
        assert any("-l " in line for line in here), verb
    assert any("from fit'" in line and "-l config -r -a " in line and "luong_dot.dates" in line for line in lines)
    assert any("from info'" in line and "han.imdb" in line for line in lines)
    assert any("from cache'" in line and "clear " in line and "han.imdb" in line for line in lines)


def test_fish_says_what_verbs_and_options_do(scripts):
    lines = scripts["fish"].read_text().splitlines()
    verbs = [line for line in lines if "__fish_use_subcommand" in line]
    assert len(verbs) == len(cli._parser()._subparsers._group_actions[0].choices)
    assert all(" -d " in line and " -d ''" not in line and "%(" not in line for line in verbs)
    assert any(
        "from predict'" in line and line.endswith("-l device -r -a 'cpu cuda mps' -d '(default: cpu)'")
        for line in lines
    )
    assert any("from fit'" in line and "-l seed_everything -d 'seed (default 0)'" in line for line in lines)
    assert not any(" -d ''" in line for line in lines)


def test_an_unknown_shell(capsys):
    with pytest.raises(SystemExit) as end:
        main(["completion", "csh"])
    assert end.value.code == 2 and "invalid choice: 'csh'" in capsys.readouterr().err
