"""`zoo predict` with classifiers and captioners: texts, files, standard input, pairs; what it writes and what it
refuses.
"""

import io
import json
import os
import re
import subprocess
import sys

import pytest
import torch
from captions_fakes import picture
from matplotlib.backend_bases import FigureCanvasBase

from zoo import registry
from zoo.cli import main
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.han import HAN
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.tasks import precision as precisions
from zoo.text import Tokenizer

WORDS = "a good film . it is bad"


def ready(model):
    model.tokenizer = Tokenizer.train([WORDS], "word_punct", 12, lowercase=True)
    model.label_names = ["negative", "neutral", "positive"]
    return model.eval()


@pytest.fixture
def zoo_of(monkeypatch):
    """Makes every name stand for one model."""

    def put(model):
        monkeypatch.setattr(registry, "load", lambda name: ready(model))
        return model

    return put


STORY = "a good film . it is bad"


@pytest.fixture
def reader(zoo_of):
    torch.manual_seed(0)
    return zoo_of(AttentionOverAttentionReader(**AttentionOverAttentionReader.tiny))


@pytest.fixture
def han(zoo_of):
    torch.manual_seed(0)
    return zoo_of(HAN(**HAN.tiny))


def fails(capsys, *args):
    capsys.readouterr()
    assert main([*args]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("zoo: error: ") and err.count("\n") == 1
    return err.removeprefix("zoo: error: ").rstrip()


def test_one_line_a_text(han, capsys):
    assert main(["predict", "han", "A good film.", "", "Bad. It is a bad film."]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for line, result in zip(lines, han.classify(["A good film.", "", "Bad. It is a bad film."])):
        assert line == f"{result.label} {result.probabilities[result.label]:.4f}"


def test_files_texts_and_standard_input_mix(han, capsys, tmp_path, monkeypatch):
    review = tmp_path / "review.txt"
    review.write_bytes("\ufeffA good film.\n\nIt is bad.\r\n".encode())
    monkeypatch.setattr(sys, "stdin", io.StringIO("it is\na film"))
    assert main(["predict", "han", str(review), "-", "good", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [[s["words"] for s in f["sentences"]] for f in found] == [
        [["A", "good", "film", "."], ["It", "is", "bad", "."]],
        [["it", "is", "a", "film"]],
        [["good"]],
    ]
    assert found[1]["source"] == "it is\na film"
    for f in found:
        assert sum(s["weight"] for s in f["sentences"]) == pytest.approx(1, abs=1e-3)
        assert sum(f["probabilities"].values()) == pytest.approx(1, abs=1e-4)


def test_lines_of_standard_input(han, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("good\n\nbad film\n"))
    assert main(["predict", "han"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize(
    "device, message",
    [
        ("cuda", "--device cuda: this machine has no GPU that torch can use; use --device cpu"),
        ("mps", "--device mps: this machine has no Apple GPU that torch can use; use --device cpu"),
    ],
)
def test_a_device_that_is_not_there(device, message, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(registry, "load", lambda name: pytest.fail("loaded first"))
    assert fails(capsys, "predict", "han", "good", "--device", device) == message


def test_the_model_is_moved_to_the_device(han, capsys, monkeypatch):
    places = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(HAN, "to", lambda model, device: places.append(device) or model)
    assert main(["predict", "han", "good"]) == main(["predict", "han", "good", "--device", "cuda"]) == 0
    assert places == ["cpu", "cuda"]


def test_precision(han, capsys, monkeypatch):
    monkeypatch.setattr(precisions, "lacks_bf16", lambda device: None)
    printed = []
    for precision in ("fp32", "bf16"):
        assert main(["predict", "han", "A good film.", "--json", "--precision", precision]) == 0
        printed.append(json.loads(capsys.readouterr().out)["probabilities"])
    assert printed[0] != printed[1] and printed[0] == pytest.approx(printed[1], abs=0.02)
    with torch.autocast("cpu", torch.bfloat16):
        inside = han.classify("A good film.").to_dict()["probabilities"]
    assert printed[1] == inside and not torch.is_autocast_enabled("cpu")
    with pytest.raises(SystemExit) as end:
        main(["predict", "han", "good", "--precision", "int8"])
    assert end.value.code == 2 and "'int8' (choose from" in capsys.readouterr().err


def test_bf16_where_it_would_be_slower(han, capsys, caplog, monkeypatch):
    monkeypatch.setattr(precisions, "lacks_bf16", lambda device: f"this {device} has none")
    assert main(["predict", "han", "A good film.", "--json", "--precision", "bf16"]) == 0
    assert caplog.messages == ["zoo: fp32 instead of bf16: this cpu has none"]
    out = capsys.readouterr().out
    assert json.loads(out)["probabilities"] == han.classify("A good film.").to_dict()["probabilities"]


@pytest.mark.gpu
def test_on_a_gpu(han, capsys):
    assert main(["predict", "han", "A good film.", "--device", "cuda", "--precision", "bf16"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 and next(han.parameters()).is_cuda


def test_pictures_and_pages(han, tmp_path, capsys):
    args = ["--plot", str(tmp_path / "x.png"), "--html", str(tmp_path / "x.html")]
    assert main(["predict", "han", "good film.", "", "bad", *args]) == 0
    assert sorted(f.name for f in tmp_path.iterdir()) == ["x-3.png", "x.html", "x.png"]  # an empty text has no picture
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert re.findall('<article id="(.*?)">', page) == re.findall('<a href="#(.*?)">', page)
    assert re.findall('<p class="above n">(.*?)</p>', page) == ["han · good film.", "han", "han · bad"]
    printed = [
        line.partition(": warning: ")[2] for line in capsys.readouterr().err.splitlines() if ": warning: " in line
    ]
    shown = [re.findall('<p class="warning">warning: (.*?)</p>', part) for part in page.split("<article ")[1:]]
    assert printed and printed == ["; ".join(texts) for texts in shown if texts]


def test_an_empty_answer_has_no_picture(han, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("zoo.results.classification.DocumentClassification.tokens", property(lambda self: []))
    assert main(["predict", "han", "good film.", "--plot", str(tmp_path / "x.png")]) == 0
    assert capsys.readouterr().err == "zoo: text 1: warning: no picture, as there is nothing to draw\n"
    assert not any(tmp_path.iterdir())


def test_a_picture_names_model_and_input(han, tmp_path, capsys):
    text = "good  film " * 20 + "$x$"
    assert main(["predict", "han", text, "--plot", str(tmp_path / "x.svg")]) == 0
    drawn = re.sub(r"\s+", " ", " ".join(re.findall("<!-- (.*?) -->", (tmp_path / "x.svg").read_text())))
    assert drawn.startswith("han · good film good film") and "…" in drawn and "→" in drawn


def test_several_labels(zoo_of, capsys):
    model = zoo_of(HAN(**{**HAN.tiny, "multi_label": True}))
    torch.nn.init.zeros_(model.classifier.weight)
    model.classifier.bias.data = torch.tensor([1.0, -5.0, 2.0])
    assert main(["predict", "han", "good"]) == 0
    assert capsys.readouterr().out == "positive 0.8808, negative 0.7311\n"
    model.classifier.bias.data = torch.tensor([0.0, -1.0, -1.0])  # 0.5 is not above the threshold, as in the scores
    assert main(["predict", "han", "good"]) == 0
    assert capsys.readouterr().out == "no label\n"


def test_pairs(zoo_of, capsys, monkeypatch):
    zoo_of(StructuredSelfAttention(**{**StructuredSelfAttention.tiny, "pair": True}))
    assert main(["predict", "ssa", "a film", "it is bad", "good", "bad", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found[0]["source"] == ["a film", "it is bad"] and found[1]["tokens"] == [["good"], ["bad"]]
    assert "compares two texts: give an even number of them; got 1" in fails(capsys, "predict", "ssa", "a")
    monkeypatch.setattr(sys, "stdin", io.StringIO("a film\tbad\n\tgood\n"))
    assert main(["predict", "ssa"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    monkeypatch.setattr(sys, "stdin", io.StringIO("a film\n"))
    assert "each line must have two texts separated by a tab; got 'a film'" in fails(capsys, "predict", "ssa")


def test_a_bad_line_has_its_number_and_costs_no_other_line_its_answer(reader, capsys, monkeypatch):
    good = json.dumps({"document": STORY, "query": "a XXXXX"})
    lines = [good] * 150
    lines[9] = ""
    lines[35], lines[99] = '{"document": "a", "query": "b"}', '{"document": "\\ud800", "query": "XXXXX"}'
    lines[120], lines[140] = "[" * 100_000, "what?"
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
    assert main(["predict", "reader"]) == 2
    out, err = capsys.readouterr()
    printed = out.splitlines()
    assert len(printed) == 150 and [n for n, line in enumerate(printed) if not line] == [9, 35, 99, 120, 140]
    assert len(set(printed)) == 2, "all others have their answer"
    starts = [
        "zoo: line 36: the query must have XXXXX in place of the missing word",
        "zoo: line 100: the text is not valid Unicode: character 1 is half a surrogate pair, \\ud800",
        "zoo: line 121: each line must be a JSON object",
        "zoo: line 141: each line must be a JSON object",
        "zoo: error: 4 of 150 lines could not be answered; see above",
    ]
    assert len(err.splitlines()) == 5 and all(map(str.startswith, err.splitlines(), starts)), err


def test_lines_that_are_not_utf8(han, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\nbad \xff\ngood film\n"), encoding="utf-8"))
    assert main(["predict", "han"]) == 2
    out, err = capsys.readouterr()
    assert [bool(line) for line in out.splitlines()] == [True, False, True]
    assert err == "zoo: error: line 2: the text is not valid Unicode: character 5 is byte 0xff, so it is not UTF-8\n"
    assert fails(capsys, "predict", "han", "bad \udcff") == err.partition("line 2: ")[2].rstrip()


@pytest.mark.parametrize(
    "name, message",
    [("stdin", "stdin is closed; give texts, or pipe them in"), ("stdout", "stdout is closed; redirect it to a file")],
)
def test_closed_streams(han, capsys, monkeypatch, name, message):
    monkeypatch.setattr(sys, name, None)
    for texts in ([], ["good", "-"]):
        assert main(["predict", "han", *texts]) == 2
        assert capsys.readouterr().err == f"zoo: error: {message}\n"


@pytest.mark.integration
@pytest.mark.skipif(os.name != "posix", reason="a shell closes the streams")
def test_nothing_but_answers_is_printed():
    command = f"{sys.executable} -m zoo"
    for arguments, code, printed in (
        ("align luong_textbook.dates /dev/null /dev/null >&-", 2, ""),
        ("list >&-", 2, ""),
        ('predict luong_dot.dates "no date at all" 2>&-', 0, "\n"),  # its warnings go to standard error
    ):
        run = subprocess.run(f"{command} {arguments}", shell=True, capture_output=True, text=True)
        assert (run.returncode, run.stdout) == (code, printed), arguments
        assert run.stderr == ("zoo: error: stdout is closed; redirect it to a file\n" if code else "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
@pytest.mark.parametrize(
    "args",
    [
        ["list"],
        ["--version"],
        ["predict", "--help"],
        ["fit", "--print_config", "--config", "recipes/luong_dot.dates.yaml"],
    ],
)
def test_output_on_a_full_disk(args):
    command = [sys.executable, "-m", "zoo", *args]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (
        done.returncode == 2
        and done.stderr
        == "zoo: error: the output could not be written (No space left on device); make room, or choose another place\n"
    )


def test_a_file_that_cannot_be_read_costs_no_other_text_its_answer(han, capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe") if hasattr(os, "mkfifo") else (tmp_path / "pipe").mkdir()
    assert main(["predict", "han", "good", str(tmp_path / "pipe"), "bad"]) == 2
    out, err = capsys.readouterr()
    assert (
        [bool(line) for line in out.splitlines()] == [True, False, True]
        and err.startswith(f"zoo: error: text 2: {tmp_path / 'pipe'} is ")
        and err.count("\n") == 1
    )


def test_mistakes(han, capsys, tmp_path):
    assert (
        fails(capsys, "predict", "han", "a", "--beam-size", "3")
        == "han is for classification: --beam-size is for translation, completion and captions"
    )
    assert (
        fails(capsys, "predict", "han", "a", "--n-best", "3")
        == "han is for classification: --n-best is for translation, completion and captions"
    )
    latin = tmp_path / "latin.txt"
    latin.write_bytes("Größe".encode("latin-1"))
    assert (
        fails(capsys, "predict", "han", str(latin))
        == f"{latin} is not UTF-8 text (byte 2); convert it first, e.g. with iconv"
    )
    binary = tmp_path / "binary"
    binary.write_bytes(b"abc\0def")
    assert fails(capsys, "predict", "han", str(binary)) == f"{binary} is a binary file; give a text file"


def test_a_file_is_named_by_its_file_name(han, capsys, tmp_path):
    (tmp_path / "review.txt").write_text("good film .", encoding="utf-8")
    args = [str(tmp_path / "review.txt"), "bad film .", "--html", str(tmp_path / "x.html")]
    assert main(["predict", "han", *args]) == 0
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "han · review.txt</p>" in page and "han · good film" not in page and "han · bad film .</p>" in page


def test_a_text_longer_than_any_file_name(han, capsys):
    assert main(["predict", "han", "good film. " * 2000, "a\0b"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_page_of_translations(toy_registry, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("a<b\n\nc\n"))
    assert main(["predict", "toy.v2", "--html", str(tmp_path / "x.html")]) == 0
    assert capsys.readouterr().out == "A<B\n\nC\n"
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert page.count("<article ") == 3 and "1. A&lt;B</a>" in page and "toy.v2 · a&lt;b</p>" in page
    assert "2. (empty)</a>" in page


# ---- images ----


@pytest.fixture
def captioner(zoo_of):
    torch.manual_seed(0)
    return zoo_of(ShowAttendTell(**ShowAttendTell.tiny))


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, name in enumerate(["b.png", "a.JPG", "c.gif"]):
        (folder / name).write_bytes(picture(number, kind={"JPG": "JPEG"}.get(name[2:], name[2:].upper())))
    (folder / "notes.txt").write_text("not an image, and not named like one")
    return folder


def test_one_image_one_line(captioner, photos, capsys, tmp_path):
    file = str(photos / "b.png")
    page, plot = tmp_path / "b.html", tmp_path / "plot.png"
    assert main(["predict", "captioner", file, "--plot", str(plot), "--html", str(page)]) == 0
    assert capsys.readouterr().out == captioner.caption(file).text + "\n"
    assert plot.is_file() and page.is_file()


@pytest.mark.integration
def test_a_folder_gives_each_image_with_its_name(captioner, photos, capsys, tmp_path):
    assert main(["predict", "captioner", str(photos), "--beam-size", "1", "--plot", str(tmp_path / "plot.png")]) == 0
    names = [str(photos / name) for name in ("a.JPG", "b.png", "c.gif")]
    want = [f"{name}\t{captioner.caption(name, beam_size=1).text}" for name in names]
    assert capsys.readouterr().out.splitlines() == want
    assert {path.name for path in tmp_path.glob("plot*")} == {"plot.png", "plot-2.png", "plot-3.png"}


def test_a_byte_order_mark_on_standard_input(captioner, photos, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"\ufeff{photos / 'b.png'}\n"))
    assert main(["predict", "captioner", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == str(photos / "b.png")


def test_image_names_on_standard_input_as_json(captioner, photos, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{photos / 'b.png'}\n{photos / 'c.gif'}\n"))
    assert main(["predict", "captioner", "--json", "--n-best", "2"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [f["source"] for f in found] == [str(photos / "b.png"), str(photos / "c.gif")]
    assert all(len(f["n_best"]) == 2 and len(f["attention"]) == len(f["tokens"]) for f in found)


def test_each_of_several_captions_has_the_name_of_its_image(captioner, photos, capsys):
    assert main(["predict", "captioner", str(photos), "--n-best", "2"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == [str(photos / name) for name in ("a.JPG", "b.png", "c.gif") for _ in range(2)]
    best = captioner.caption(str(photos / "b.png"), n_best=2).n_best
    assert [tuple(row[1:]) for row in rows[2:4]] == [(f"{score:.4f}", text) for text, score in best]


@pytest.mark.parametrize("plot", ["c.png", "a.png"])
def test_an_image_named_on_standard_input_is_not_written_over(plot, captioner, tmp_path, capsys, monkeypatch):
    """By its own name, or as the picture of an image before it."""
    names = [tmp_path / name for name in ("c.png", "c.png", "a-2.png")]
    for number, name in enumerate(names):
        name.write_bytes(picture(number))
    before = [name.read_bytes() for name in names]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{name}\n" for name in names)))
    message = fails(capsys, "predict", "captioner", "--plot", str(tmp_path / plot))
    assert message.startswith("--plot would overwrite the input ") and message.endswith("; give another name")
    assert [name.read_bytes() for name in names] == before


def test_the_same_image_twice_has_two_pictures(captioner, tmp_path, capsys):
    (tmp_path / "a-2.png").write_bytes(before := picture(0))
    twice = [str(tmp_path / "a-2.png")] * 2
    assert "would overwrite" in fails(capsys, "predict", "captioner", *twice, "--plot", str(tmp_path / "a.png"))
    assert (tmp_path / "a-2.png").read_bytes() == before


def test_a_bad_image_is_reported_and_the_others_are_captioned(captioner, photos, capsys):
    whole = (photos / "a.JPG").read_bytes()
    (photos / "aa.jpg").write_bytes(whole[: len(whole) // 2])
    assert main(["predict", "captioner", str(photos), "missing.png"]) == 2
    out, err = capsys.readouterr()
    assert [line.split("\t")[0] for line in out.splitlines()] == [
        str(photos / name) for name in ("a.JPG", "b.png", "c.gif")
    ]
    lines = [line for line in err.splitlines() if line.startswith("zoo: ") and ": warning: " not in line]
    assert lines[0].startswith(f"zoo: {photos / 'aa.jpg'}: ") and lines[1] == "zoo: missing.png: no such file"
    assert lines[2:] == ["zoo: error: 2 of 5 images could not be read; see above"]


def test_all_formats_of_a_folder_are_read(captioner, tmp_path, capsys):
    for name, kind in (("a.jp2", "JPEG2000"), ("b.TIFF", "TIFF"), ("c.webp", "WEBP")):
        (tmp_path / name).write_bytes(picture(1, kind=kind))
    assert main(["predict", "captioner", str(tmp_path)]) == 0
    found = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert found == [str(tmp_path / name) for name in ("a.jp2", "b.TIFF", "c.webp")]


def test_a_folder_without_images_costs_no_other_image_its_caption(captioner, photos, capsys, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    names = [str(photos / "b.png"), str(tmp_path / "empty"), str(photos / "c.gif")]
    for typed in (names, []):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{name}\n" for name in names)))
        assert main(["predict", "captioner", *typed]) == 2
        out, err = capsys.readouterr()
        assert [line.split("\t")[0] for line in out.splitlines()] == [names[0], names[2]]
        assert f"zoo: {names[1]}: a folder; give an image" in err.splitlines()
        assert err.splitlines()[-1] == "zoo: error: 1 of 3 images could not be read; see above"


def test_images_of_other_kinds_in_a_folder_are_named(captioner, photos, tmp_path, capsys):
    (tmp_path / "a.png").write_bytes((photos / "b.png").read_bytes())
    for name in ("b.HEIC", "c.svg", "d.svg", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert main(["predict", "captioner", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert f"zoo: {tmp_path}: images of kinds that cannot be read are left out: 3 of .heic, .svg" in err.splitlines()


def test_an_empty_folder(captioner, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert fails(capsys, "predict", "captioner", str(tmp_path / "empty")).startswith(
        f"the folder {tmp_path / 'empty'} has no images (.avif, "
    )


def test_where_nothing_can_be_written_nothing_is_loaded(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(registry, "load", lambda name: pytest.fail("loaded first"))
    formats = ", .".join(sorted(FigureCanvasBase.get_supported_filetypes()))  # newer versions of matplotlib know more
    assert (
        fails(capsys, "predict", "any", "a", "--plot", str(tmp_path / "x.abc"))
        == f"the name of a picture must end in one of .{formats}; got {str(tmp_path / 'x.abc')!r}"
    )
    assert fails(capsys, "predict", "any", "a", "--plot", str(tmp_path / "x")).endswith(f"got {str(tmp_path / 'x')!r}")
    assert (
        fails(capsys, "predict", "any", "a", "--plot", str(tmp_path / "no" / "x.png"))
        == f"{tmp_path / 'no'}: no such file or folder"
    )
    assert (
        fails(capsys, "predict", "any", "a", "--html", str(tmp_path / "no" / "x.html"))
        == f"{tmp_path / 'no'}: no such file or folder"
    )
    assert fails(capsys, "predict", "any", "a", "--html", str(tmp_path)) == f"{tmp_path} is a folder; give a file"
    (tmp_path / "a.txt").write_text("ein Hund\ta dog\n", encoding="utf-8")
    assert "must end in one of" in fails(
        capsys, "align", "any", str(tmp_path / "a.txt"), "--plot", str(tmp_path / "x.abc")
    )


def test_a_folder_is_no_text(han, tmp_path, capsys, monkeypatch):
    assert (
        fails(capsys, "predict", "han", str(tmp_path))
        == f"{tmp_path} is a folder; give text files, e.g. {tmp_path}/*.txt"
    )
    (tmp_path / "good").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["predict", "han", "good"]) == 0, "a word that is the name of a folder by chance"


# ---- queries about documents ----


def test_queries_about_a_document(reader, capsys, tmp_path):
    story = tmp_path / "story.txt"
    story.write_text(STORY, encoding="utf-8")
    args = [
        "predict",
        "reader",
        "XXXXX is good",
        "a XXXXX",
        "--document",
        str(story),
        "--plot",
        str(tmp_path / "x.png"),
        "--html",
        str(tmp_path / "x.html"),
    ]
    assert main(args) == 0
    want = reader.answer(STORY, ["XXXXX is good", "a XXXXX"])
    assert capsys.readouterr().out.splitlines() == [f"{r.answer} {r.probabilities[r.answer]:.4f}" for r in want]
    assert {path.name for path in tmp_path.iterdir()} == {"story.txt", "x.png", "x-2.png", "x.html"}
    assert main(["predict", "reader", "XXXXX", "--document", STORY, "--candidates", "film|bad", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["probabilities"]) == ["film", "bad"] and found["document"] == STORY.split()
    assert found["source"] == {"document": STORY, "candidates": ["film", "bad"], "query": "XXXXX"}


def test_queries_may_stand_behind_the_options(reader, capsys):
    assert main(["predict", "reader", "--document", STORY, "XXXXX is", "a XXXXX"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    with pytest.raises(SystemExit):
        main(["predict", "reader", "XXXXX", "--dokument", STORY])
    assert "unrecognized arguments: --dokument" in capsys.readouterr().err


def test_a_query_a_line(reader, capsys, monkeypatch, tmp_path):
    (tmp_path / "story.txt").write_text(STORY, encoding="utf-8")
    queries = ["XXXXX is good", "", "a XXXXX", "no gap", json.dumps({"query": "it is XXXXX"})]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(queries) + "\n"))
    assert main(["predict", "reader", "--document", str(tmp_path / "story.txt")]) == 2
    out, err = capsys.readouterr()
    want = reader.answer(STORY, ["XXXXX is good", "a XXXXX", "it is XXXXX"])
    assert out.splitlines() == [want[0].line(), "", want[1].line(), "", want[2].line()]
    assert err == "zoo: error: line 4: the query must have XXXXX in place of the missing word; got 'no gap'\n"


def test_queries_as_json_lines(reader, capsys, monkeypatch):
    lines = [{"document": STORY, "query": "XXXXX", "candidates": ["bad"]}, {"document": "it is", "query": "a XXXXX"}]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(json.dumps, lines)) + "\n\n"))
    assert main(["predict", "reader", "--json"]) == 0
    first, second, blank = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert blank is None
    assert first["answer"] == "bad" and second["answer"] in ("it", "is") and second["source"] == lines[1]
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"query": "a XXXXX"}\n'))
    assert main(["predict", "reader", "--document", STORY]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    "line, message",
    [
        (
            "what?",
            "each line must be a JSON object with the fields document, query and, optionally, candidates; Expecting "
            "value",
        ),
        ('["a"]', "each line must be a JSON object with the fields document, query and, optionally, candidates; got"),
        ('{"query": "XXXXX"}', "each line must be a JSON object with the fields document, query"),
        ('{"document": 3, "query": "XXXXX"}', "'document' of a line must be a string; got 3"),
        (
            '{"document": "a", "query": "XXXXX", "candidates": "a"}',
            "'candidates' of a line must be a list of strings; got 'a'",
        ),
        (
            '{"document": "a", "query": "XXXXX", "candidate": ["a"]}',
            "a line has the fields document, query and candidates; got candidate",
        ),
        ('{"document": "a", "query": "b"}', "the query must have XXXXX in place of the missing word; got 'b'"),
    ],
)
def test_lines_that_are_no_questions(reader, capsys, monkeypatch, line, message):
    monkeypatch.setattr(sys, "stdin", io.StringIO(line + "\n"))
    assert fails(capsys, "predict", "reader").startswith(f"line 1: {message}")


def test_mistakes_with_queries(reader, zoo_of, capsys, tmp_path):
    for nothing, what in (
        ("story.txt", "no such file"),
        (str(tmp_path), "it is a folder"),
        ("", "it is empty"),
    ):
        wrong = fails(capsys, "predict", "reader", "XXXXX", "--document", nothing)
        assert wrong == f"--document {nothing}: {what}; give a text file, or the document itself"
    assert (
        fails(capsys, "predict", "reader", "XXXXX") == "reader answers queries about a document: give --document FILE"
    )
    wrong = fails(capsys, "predict", "reader", "XXXXX", "--document", STORY, "--beam-size", "2")
    assert wrong == "reader is for reading: --beam-size is for translation, completion and captions"
    assert fails(capsys, "predict", "reader", "--document", "-").startswith(
        "--document - reads the document from standard input: give the queries"
    )
    loose = "XXXXX", "bad", "--document", STORY, "--candidates", "film"
    assert "got 'bad'; several candidates are joined by a bar, in quotes: --candidates 'Ann|Tom'" in fails(
        capsys, "predict", "reader", *loose
    )
    assert "none of the candidates is in the document" in fails(
        capsys, "predict", "reader", "XXXXX", "--document", STORY, "--candidates", "x|y"
    )
    zoo_of(HAN(**HAN.tiny))
    wrong = fails(capsys, "predict", "han", "a", "--document", STORY)
    assert wrong == "han is for classification: --document is for reading"


@pytest.mark.parametrize("name", ["photo.png", "link.png", "other.png"])
def test_what_is_read_is_not_written_over(name, toy_registry, tmp_path, capsys):
    """By its own name, by a link, or as the picture of the second answer."""
    for file in ("photo.png", "other-2.png"):
        (tmp_path / file).write_bytes(b"pixels")
    (tmp_path / "link.png").symlink_to("photo.png")
    texts = [str(tmp_path / "photo.png"), str(tmp_path / "other-2.png")]
    message = fails(capsys, "predict", "toy.v2", *texts, "--plot", str(tmp_path / name))
    assert message.startswith("--plot would overwrite the input ") and message.endswith("; give another name")
    message = fails(capsys, "predict", "toy.v2", "a", "--html", str(tmp_path / "thesis.docx"))
    assert message.startswith("the name of a page must end in .html")
    assert all((tmp_path / file).read_bytes() == b"pixels" for file in ("photo.png", "other-2.png"))
