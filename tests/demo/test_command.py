"""`zoo demo`: a server for the browser, or a folder of static files."""

import gzip
import json
import shutil
import socket

import pytest
import yaml
from page_engine import make_export

from zoo.cli import main
from zoo.commands import demo
from zoo.commands.cards import read_card
from zoo.demo.page import FIRST, site_files
from zoo.demo.wrapped import unwrapped
from zoo.registry import list_models


@pytest.fixture
def exported(tmp_path):
    return make_export(tmp_path / "exported")


@pytest.fixture
def graphs(monkeypatch, exported):
    """Exports of all weights are the same one; the names of those that were made."""
    made = []

    def graphs_of(name, int8):
        assert int8
        made.append(name)
        return exported

    monkeypatch.setattr(demo, "graphs_of", graphs_of)
    monkeypatch.setattr(demo, "exported_graphs", lambda name, int8: None)
    return made


@pytest.fixture
def served(monkeypatch):
    """What would be served, instead of a server; and the pages that browsers were opened for."""
    found = {"opened": []}

    def serve(port, models, started):
        started(f"http://127.0.0.1:{port}/")
        found.update(port=port, index=json.loads(models.index()), models=models)

    monkeypatch.setattr(demo, "serve", serve)
    monkeypatch.setattr(demo.webbrowser, "open", found["opened"].append)
    return found


def test_the_folder_is_whole(graphs, exported, tmp_path, capsys):
    folder = tmp_path / "page"
    assert main(["demo", "--export", str(folder), "luong_dot.dates", "han.imdb"]) == 0
    for name, source in site_files().items():
        assert (folder / name).read_bytes() == source.read_bytes()
    for source in (exported / "onnx.json", exported / "step.onnx"):
        assert (
            gzip.decompress(unwrapped((folder / "models/luong_dot.dates" / f"{source.name}.js").read_bytes()))
            == source.read_bytes()
        )
    found = json.loads((folder / "models/index.json").read_text())
    assert unwrapped((folder / "models/index.json.js").read_bytes()) == (folder / "models/index.json").read_bytes()
    assert found["scripts"] and [model["name"] for model in found["models"]] == ["luong_dot.dates", "han.imdb"]
    size = sum(file.stat().st_size for file in (folder / "models/han.imdb").iterdir() if file.name != "card.md.js")
    assert found["models"][1] | {"facts": None} == {
        "name": "han.imdb",
        "task": "classification",
        "title": "Hierarchical attention network on film reviews (IMDB)",
        "languages": ["en"],
        "facts": None,
        "ready": True,
        "bytes": size,
        "files": ["onnx.json", "step.onnx"],
    }
    said = capsys.readouterr().out
    assert "luong_dot.dates" in said and "total" in said


def test_the_folder_is_a_static_space_of_the_hub(graphs, tmp_path):
    folder = tmp_path / "page"
    names = ["luong_general.multi30k_en_de", "luong_dot.dates"]
    licences = {name: read_card(name)[0]["license"] for name in names}
    assert main(["demo", "--export", str(folder), *names]) == 0
    _, front, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    facts = yaml.safe_load(front)
    assert facts["sdk"] == "static" and facts["title"] == "Attention Zoo"
    assert (folder / facts["app_file"]).read_bytes() == site_files()["index.html"].read_bytes()
    assert facts["license"] == "other" and len(facts["short_description"]) <= 60
    for name, licence in licences.items():
        assert f"| {name} | {read_card(name)[1].splitlines()[0].removeprefix('# ')} | {licence} |" in text
    free = next(name for name in list_models() if read_card(name)[0]["license"] == "apache-2.0")
    assert main(["demo", "--export", str(folder), free]) == 0
    assert (
        yaml.safe_load((folder / "README.md").read_text(encoding="utf-8").split("---\n")[1])["license"] == "apache-2.0"
    )


def test_cards_are_in_the_folder_and_not_in_its_list(graphs, served, tmp_path):
    _, card = read_card("han.imdb")
    folder = tmp_path / "page"
    assert main(["demo", "--export", str(folder), "han.imdb"]) == 0
    written = unwrapped((folder / "models/han.imdb/card.md.js").read_bytes())
    assert gzip.decompress(written).decode() == card
    assert "card" not in json.loads((folder / "models/index.json").read_text())["models"][0]
    assert main(["demo", "--no-browser", "han.imdb"]) == 0
    assert served["models"].content("han.imdb", "card.md").decode() == card


def test_an_earlier_page_is_replaced_and_nothing_else(graphs, tmp_path, capsys):
    folder = tmp_path / "page"
    assert main(["demo", "--export", str(folder), "luong_dot.dates"]) == 0
    (folder / "page.js").write_text("old")
    assert main(["demo", "--export", str(folder), "han.imdb"]) == 0
    assert (folder / "page.js").read_bytes() == site_files()["page.js"].read_bytes()
    assert [model["name"] for model in json.loads((folder / "models/index.json").read_text())["models"]] == ["han.imdb"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/mine.txt").write_text("mine")
    graphs.clear()
    for target, message in [("other", "holds other files than a page"), ("other/mine.txt", "is not a folder")]:
        assert main(["demo", "--export", str(tmp_path / target)]) == 2
        assert message in capsys.readouterr().err and not graphs
    assert (tmp_path / "other/mine.txt").read_text() == "mine"


def test_without_names_the_first_model_is_prepared(graphs, served, capsys):
    assert main(["demo"]) == 0
    assert graphs == [FIRST] and served["opened"] == ["http://127.0.0.1:8765/"] and served["port"] == 8765
    assert "zoo: the page is at http://127.0.0.1:8765/" in capsys.readouterr().err
    models = served["index"]["models"]
    assert {model["name"] for model in models} == {*list_models()}
    assert [model["name"] for model in models if model["ready"]] == [FIRST] == [models[0]["name"]]


def test_what_is_exported_is_not_exported_again(graphs, served, monkeypatch, exported):
    monkeypatch.setattr(demo, "exported_graphs", lambda name, int8: exported if name == "han.imdb" else None)
    assert main(["demo", "--no-browser", "--port", "0"]) == 0
    assert not graphs and not served["opened"]
    assert [model["name"] for model in served["index"]["models"] if model["ready"]] == ["han.imdb"]


@pytest.mark.integration
def test_a_folder_of_the_user_is_the_first_model(served, translator, tmp_path, capsys):
    """Graphs that are there are taken as they are; a bundle would be exported into the cache."""
    _, graphs = translator
    folder = tmp_path / "my best  weights!"
    shutil.copytree(graphs, folder)
    assert main(["demo", f"local-dir:{folder}", "--no-browser"]) == 0
    first, second = served["index"]["models"][:2]
    assert served["index"]["first"] == first["name"] == "my-best-weights-" and first["ready"]
    assert (first["task"], first["languages"]) == ("translation", [])
    assert first["title"] == "LuongNMT in the folder my-best-weights-" and first["facts"]["parameters"] > 1000
    assert second["name"] == FIRST  # the others are offered too
    assert served["models"].content("my-best-weights-", "card.md") is None
    assert served["models"].content("my-best-weights-", "step.onnx") == (graphs / "step.onnx").read_bytes()
    assert main(["demo", "--export", str(tmp_path / "page"), f"local-dir:{folder}/"]) == 0
    found = json.loads((tmp_path / "page" / "models" / "index.json").read_text(encoding="utf-8"))
    assert [model["name"] for model in found["models"]] == ["my-best-weights-"] == [found["first"]]
    packed = tmp_path / "page" / "models" / "my-best-weights-" / "step.onnx.js"
    assert gzip.decompress(unwrapped(packed.read_bytes())) == (graphs / "step.onnx").read_bytes()


@pytest.mark.integration
def test_a_bundle_of_the_user_is_exported(graphs, served, tmp_path, translator):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    assert main(["demo", f"local-dir:{tmp_path / 'mine'}", "--no-browser"]) == 0
    assert graphs == [f"local-dir:{tmp_path / 'mine'}"] and served["index"]["models"][0]["name"] == "mine"


def test_named_models_are_prepared_first(graphs, served):
    assert main(["demo", "han.reuters", "luong_dot.dates", "--no-browser"]) == 0
    assert graphs == ["han.reuters", "luong_dot.dates"]
    assert [model["name"] for model in served["index"]["models"][:2]] == graphs


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["luong_dot.date"], "unknown model 'luong_dot.date'"),
        (
            ["local-dir:a/x", "local-dir:b/x"],
            "two models of the page would be called x; rename the folder of local-dir:b/x",
        ),
        (["local-dir:han.imdb"], "two models of the page would be called han.imdb; rename the folder"),
        (["--port", "70000"], "--port must be from 0 to 65535; got 70000"),
    ],
)
def test_mistakes_are_one_line(graphs, served, words, message, capsys):
    assert main(["demo", *words]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and not graphs


def test_a_taken_port_is_one_line(graphs, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["demo", "--no-browser", "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"port {port} cannot be used" in said and said.count("\n") == 1


def test_without_onnx_it_says_what_to_install(served, monkeypatch, capsys):
    monkeypatch.setattr("zoo.utils.extras.missing", lambda extra: ["onnxscript>=0.5.4"])
    monkeypatch.setattr(demo, "exported_graphs", lambda name, int8: None)
    assert main(["demo"]) == 2
    assert "needs onnxscript; install with: pip install" in capsys.readouterr().err
