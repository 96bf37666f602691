"""What editors and type checkers know: the class behind each name of `zoo.load`, the keywords of each constructor."""

import ast
import importlib
import inspect
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml
from test_documentation import PAGES, ROOT, blocks

import zoo
import zoo.data
from zoo import registry
from zoo.cli import main
from zoo.commands.cards import read_card
from zoo.layers.attention import ATTENTIONS, AttentionOptions, GlobalAttention
from zoo.tasks.base import ZooModule
from zoo.utils.unpack import Unpack

STUB = ROOT / "zoo/__init__.pyi"


# ---- the stub ----


def imported(tree):
    """Name -> dotted path, of what a file imports."""
    return {
        name.name: f"{node.module}.{name.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }


def overloads(tree):
    """(names, class) of each overload of `load`; the names are None for any string."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            assert node.name == "load" and [ast.unparse(part) for part in node.decorator_list] == ["overload"]
            name, overrides = node.args.args
            assert (name.arg, ast.unparse(overrides)) == ("name", "overrides: dict[str, Any] | None")
            assert ast.unparse(node.args.defaults[0]) == "None" and len(node.args.defaults) == 1
            if isinstance(name.annotation, ast.Subscript):
                names = ast.literal_eval(name.annotation.slice)
                yield [names] if isinstance(names, str) else [*names], ast.unparse(node.returns)
            else:
                assert ast.unparse(name.annotation) == "str"
                yield None, ast.unparse(node.returns)


def of_each_class():
    """Dotted path of a class -> the names of its weights, as their config.json says."""
    found = {}
    for name in registry.list_models():
        config = json.loads((registry.BUNDLED / name / "config.json").read_text(encoding="utf-8"))
        found.setdefault(config["class_path"], []).append(name)
    return found


def expected():
    """What the stub says of `load`: its imports and overloads."""
    imports, functions = [], []
    for path, names in sorted(of_each_class().items()):
        module, _, cls = path.rpartition(".")
        imports.append(f"from {module} import {cls}\n")
        quoted = "".join(f'        "{name}",\n' for name in names)
        functions.append(
            "@overload\ndef load(\n    name: Literal[\n"
            f"{quoted}    ],\n    overrides: dict[str, Any] | None = None,\n) -> {cls}: ...\n"
        )
    return "".join([*imports, "\n", *functions])


def test_the_stub_has_the_class_of_each_weight():
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    paths, found = imported(tree), list(overloads(tree))
    assert found[-1] == (None, "ZooModule") and paths["ZooModule"] == f"{ZooModule.__module__}.ZooModule"
    stated = {paths[cls]: sorted(names) for names, cls in found[:-1]}
    wanted = {path: sorted(names) for path, names in of_each_class().items()}
    assert stated == wanted, f"put this into {STUB.relative_to(ROOT)}, and run `ruff format`:\n\n{expected()}"
    assert len(found) == len(stated) + 1


def test_what_the_failing_test_prints_is_right():
    tree = ast.parse(expected())
    assert {imported(tree)[cls]: names for names, cls in overloads(tree)} == of_each_class()


def test_the_stub_has_the_public_names():
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    (stated,) = (node.value for node in tree.body if isinstance(node, ast.Assign))
    assert ast.literal_eval(stated) == zoo.__all__
    paths = imported(tree)
    for name in {*zoo.__all__} - {"load"}:
        module, _, attribute = paths[name].rpartition(".")
        assert getattr(importlib.import_module(module), attribute) is getattr(zoo, name), name


def test_the_stub_says_of_load_what_its_code_says():
    signature = inspect.signature(registry.load)
    assert list(signature.parameters) == ["name", "overrides"] and signature.return_annotation == "ZooModule"
    assert signature.parameters["overrides"].default is None


# ---- keywords ----


def keywords(cls):
    """Name -> type of the keyword arguments that a constructor lists itself."""
    hints = get_type_hints(cls.__init__)
    return {
        name: hints[name]
        for name, parameter in inspect.signature(cls.__init__).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD and name != "self"
    }


def passed_on(function):
    """The TypedDict of `**options: Unpack[...]`; None if a function takes no further keywords."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    kwarg = tree.body[0].args.kwarg
    if kwarg is None:
        return None
    assert isinstance(kwarg.annotation, ast.Subscript) and ast.unparse(kwarg.annotation.value) == "Unpack", (
        f"{function.__qualname__}: **{kwarg.arg} must say which keywords there are"
    )
    return function.__globals__[ast.unparse(kwarg.annotation.slice)]


def with_constructor(cls):
    """The class, and its bases, that have constructors of their own, up to the one that lists all keywords."""
    found = [base for base in cls.__mro__ if "__init__" in vars(base)]
    last = next(n for n, base in enumerate(found) if passed_on(base.__init__) is None)
    return found[: last + 1]


DATA = [getattr(zoo.data, name) for name in zoo.data.__all__]


@pytest.mark.parametrize("cls", DATA, ids=lambda cls: cls.__name__)
def test_data_modules_pass_on_the_keywords_of_their_base_class(cls):
    *own, base = with_constructor(cls)
    for part in own:
        options = get_type_hints(passed_on(part.__init__))
        wanted = {name: kind for name, kind in keywords(base).items() if name not in keywords(part)}
        assert options == wanted and passed_on(part.__init__).__total__ is False


def test_all_bases_are_compared():
    bases = {with_constructor(cls)[-1].__name__ for cls in DATA if len(with_constructor(cls)) > 1}
    assert bases == {"PairData", "LabeledData", "ClozeData", "CaptionData", "RunningText"}


@pytest.mark.parametrize("cls", ATTENTIONS.values(), ids=ATTENTIONS)
def test_kinds_of_attention_take_the_same_keywords(cls):
    wanted = keywords(GlobalAttention)
    del wanted["query_size"], wanted["memory_size"]
    assert get_type_hints(AttentionOptions) == wanted
    assert passed_on(cls.__init__) in (None, AttentionOptions)


def test_a_wrong_keyword():
    with pytest.raises(TypeError, match="unexpected keyword argument 'vocab_sizee'"):
        zoo.data.LabeledText("train.tsv", vocab_sizee=3)


@pytest.mark.parametrize("where", ["command line", "recipe"])
def test_a_wrong_keyword_at_the_command_line_is_one_line(where, tmp_path, capsys):
    data = {"class_path": "zoo.data.LabeledText", "init_args": {"train": "train.tsv"}}
    if where == "recipe":
        data["init_args"]["vocab_sizee"] = 3
    recipe = {"model": {"class_path": "zoo.load", "init_args": {"name": "han.imdb"}}, "data": data}
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    wrong = ["--data.vocab_sizee", "3"] if where == "command line" else []
    assert main(["fit", "--config", str(file), *wrong]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("zoo: error: data: ") and line.endswith(
        "Option 'vocab_sizee' is not accepted; did you mean vocab_size?"
    )


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("dropout", "the arguments of the weight itself are given as --model.overrides.dropout"),
        ("nam", "did you mean name?"),
    ],
)
def test_an_unknown_option_of_a_pretrained_weight(tmp_path, capsys, option, advice):
    data = {"class_path": "zoo.data.LabeledText", "init_args": {"train": "train.tsv"}}
    recipe = {"model": {"class_path": "zoo.load", "init_args": {"name": "han.imdb"}}, "data": data}
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    assert main(["fit", "--config", str(file), f"--model.{option}", "0.3"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("zoo: error: ") and line.endswith(f"Option '{option}' is not accepted; {advice}")


def test_command_lines_do_not_see_the_typed_dicts():
    """jsonargparse would lose defaults and help texts."""
    assert inspect.signature(zoo.data.LabeledText).parameters["options"].annotation is Unpack[AttentionOptions]
    assert not hasattr(Unpack[AttentionOptions], "__args__")


# ---- pyright ----


def cards():
    return {name: read_card(name)[1] for name in registry.list_models()}


@pytest.fixture(scope="module")
def pyright(tmp_path_factory):
    """File name -> code -> file name -> (severity, line, message) of what pyright finds."""

    def check(files):
        folder = tmp_path_factory.mktemp("pyright")
        for name, code in files.items():
            (folder / name).write_text(code, encoding="utf-8")
        settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings))
        command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if not run.stdout.startswith("{"):
            pytest.skip(f"pyright does not start here: {(run.stderr or run.stdout).strip()[-300:]}")
        answer = json.loads(run.stdout)
        assert answer["summary"]["filesAnalyzed"] == len(files)
        found = {name: [] for name in files}
        for part in answer["generalDiagnostics"]:
            found[Path(part["file"]).name].append(
                (part["severity"], part["range"]["start"]["line"] + 1, part["message"].splitlines()[0])
            )
        return found

    return check


@pytest.mark.slow
def test_pyright_passes_the_examples(pyright):
    files = {
        f"{page.replace('/', '_')}_{n}.py": code
        for page, text in (PAGES | cards()).items()
        for n, code in enumerate(blocks(text, "python"))
    }
    assert len(files) > 30
    # torch declares that a DataLoader takes a Dataset, and takes any sequence
    of_torch = 'parameter "dataset" of type "Dataset['
    wrong = {name: [line for line in found if of_torch not in line[2]] for name, found in pyright(files).items()}
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.slow
def test_pyright_knows_names_and_keywords(pyright):
    code = """\
import zoo
from zoo.data import Cloze, Dates, LabeledText, Multi30k
from zoo.layers.attention import make_attention

reveal_type(zoo.load("han.imdb"))
reveal_type(zoo.load("local-dir:mine"))
reveal_type(zoo.load("han.imdb").classify("A text."))
LabeledText("train.tsv", vocab_size=3, seed=1)
LabeledText("train.tsv", vocab_sizee=3)
Multi30k(tokenizer="words")
Dates(vocab_size=50, batch_size=8, max_length=None)
Cloze("train.tsv", tokenizer="word", seed="1")
make_attention("global", 4, 4, scores="dot")
zoo.load("han.imdb").translate("A text.")
zoo.laod("han.imdb")
"""
    found = pyright({"code.py": code})["code.py"]
    revealed = [message for severity, _, message in found if severity == "information"]
    assert [message.split(" is ")[1] for message in revealed] == [
        '"HAN"',
        '"ZooModule"',
        '"DocumentClassification"',
    ]
    assert [line for severity, line, _ in found if severity == "error"] == [9, 10, 12, 13, 14, 15]
    messages = {line: message for severity, line, message in found if severity == "error"}
    assert messages[9] == 'No parameter named "vocab_sizee"' and messages[13] == 'No parameter named "scores"'
