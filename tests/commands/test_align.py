"""`zoo align`: links of given translations, and how many are wrong."""

import gzip
import json

import pytest
import torch
from model_cases import build

import zoo
from zoo.cli import main
from zoo.metrics import alignment_error_rate, diagonal_links, read_gold_alignments
from zoo.models.han import HAN

NAME = "luong_general.multi30k_de_en"
PAIRS = [
    ("Im Schnee läuft ein schwarzer Hund .", "A black dog runs in the snow ."),
    ("Zwei Männer spielen .", "Two men are playing ."),
    ("", "nothing"),
]
GOLD = "1-5 1p6 2-7 3-4 4-1 5-2 6-3 7-8\n1-1 2-2 3p3 3-4 4-5\n\n"


@pytest.fixture
def files(tmp_path):
    for name, text in (
        ("de", "\n".join(s for s, _ in PAIRS)),
        ("en", "\n".join(t for _, t in PAIRS)),
        ("gold", GOLD[:-1]),
    ):
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    (tmp_path / "both").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS), encoding="utf-8")
    return tmp_path


def _fails(capsys, *args):
    assert main(["align", *map(str, args)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("zoo: error: ")


def test_links_are_those_of_align(files, capsys):
    assert main(["align", NAME, str(files / "de"), str(files / "en")]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = zoo.load(NAME).align(PAIRS)
    assert lines == [" ".join(f"{i}-{j}" for i, j in alignment.links) for alignment in found]
    assert {"4-1", "5-2"} <= set(lines[0].split()) and lines[
        2
    ] == ""  # schwarzer-black, Hund-dog; an empty side has no links
    assert main(["align", NAME, str(files / "both")]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_links_stay_next_to_the_lines_of_one_file(files, capsys):
    lines = (files / "both").read_text(encoding="utf-8").splitlines()
    long = " ".join(["Hund"] * 1001)
    (files / "gaps").write_text(f"\n{lines[0]}\n\n{long}\tdog\n{lines[1]}\n", encoding="utf-8")
    assert main(["align", NAME, str(files / "gaps")]) == 2
    out, err = capsys.readouterr()
    assert [bool(line) for line in out.splitlines()] == [False, True, False, False, True]
    assert err.splitlines()[-1].startswith("zoo: error: line 4: the text has 1,001 tokens")
    (files / "named.tsv").write_text(f"src\ttgt\n{long}\tdog\n", encoding="utf-8")
    assert _fails(capsys, NAME, files / "named.tsv").startswith("pair 1: the text has 1,001 tokens")


def test_json_and_picture(files, capsys):
    assert main(["align", NAME, str(files / "both"), "--json", "--plot", str(files / "picture.png")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["source"] for row in rows] == [s for s, _ in PAIRS]
    assert torch.tensor(rows[0]["attention"]).shape == (8, 7) and rows[0]["target_words"][2] == "dog"
    assert (files / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_page_of_all_pairs(files):
    assert main(["align", NAME, str(files / "both"), "--html", str(files / "pairs.html")]) == 0
    page = (files / "pairs.html").read_text(encoding="utf-8")
    assert page.count("<article ") == len(PAIRS) and ">schwarzer</span>" in page and NAME in page


def test_picture_of_the_first_pair_that_has_words(files, capsys):
    (files / "both").write_text("\tnothing\n" + "".join(f"{s}\t{t}\n" for s, t in PAIRS[:2]), encoding="utf-8")
    assert main(["align", NAME, str(files / "both"), "--plot", str(files / "picture.svg")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3 and "schwarzer" in (files / "picture.svg").read_text(
        encoding="utf-8"
    )


def test_error_rate_beside_the_diagonal(files, capsys):
    assert main(["align", NAME, str(files / "both"), "--gold", str(files / "gold")]) == 0
    head, model, diagonal = capsys.readouterr().out.splitlines()
    assert head.split() == ["AER", "precision", "recall"]
    gold = read_gold_alignments(files / "gold")
    wanted = alignment_error_rate([alignment.links for alignment in zoo.load(NAME).align(PAIRS)], gold)
    assert model == f"{NAME}{wanted['aer']:8.2f}{wanted['precision']:11.2f}{wanted['recall']:8.2f}"
    lengths = [(len(s.split()), len(t.split())) for s, t in PAIRS]
    wanted = alignment_error_rate([diagonal_links(*sizes) for sizes in lengths], gold)
    assert diagonal.split() == ["the", "diagonal", *(f"{wanted[key]:.2f}" for key in ("aer", "precision", "recall"))]
    assert float(model.split()[1]) < float(diagonal.split()[2])


def test_files_that_do_not_fit(files, capsys, tmp_path):
    (files / "short").write_text("one line\n")
    assert "short has 1" in _fails(capsys, NAME, files / "de", files / "short")
    assert "expected source and target separated by a tab" in _fails(capsys, NAME, files / "de")
    assert "0 lines for 3 pairs" in _fails(capsys, NAME, files / "both", "--gold", _written(files, ""))
    assert "2 lines for 3 pairs" in _fails(capsys, NAME, files / "both", "--gold", _written(files, "1-1\n1-1\n"))
    assert "a link joins words 8 and 1 of sentences of 7 and 8 words" in _fails(
        capsys, NAME, files / "both", "--gold", _written(files, "8-1\n\n\n")
    )
    assert "expected i-j (sure) or ipj" in _fails(capsys, NAME, files / "both", "--gold", _written(files, "x\n\n\n"))
    assert "nowhere: no such file" in _fails(capsys, NAME, files / "nowhere")
    assert _fails(capsys, NAME, files).endswith(f"{files} is a folder; give a file")
    (files / "latin").write_bytes("ein Mädchen\ta girl\n".encode("latin-1"))
    assert "latin, line 1: byte 0xe4 (number 6 of the line) is not utf-8 text; save the file as utf-8" in _fails(
        capsys, NAME, files / "latin"
    )
    (files / "cut.gz").write_bytes(gzip.compress(b"a\tb\n")[:-6])
    assert "cut.gz: not a complete .gz file" in _fails(capsys, NAME, files / "cut.gz")
    assert "wrong is not utf-8 text (byte 0xff); save" in _fails(
        capsys, NAME, files / "both", "--gold", _written(files, b"\xff\n")
    )
    assert "give only one of them" in _fails(
        capsys, NAME, files / "both", "--json", "--gold", _written(files, "\n\n\n")
    )


def test_a_pair_that_is_too_long_costs_no_other_one_its_links(files, capsys):
    whole = "".join(f"{s}\t{t}\n" for s, t in PAIRS)
    (files / "whole").write_text(whole, encoding="utf-8")
    assert main(["align", NAME, str(files / "whole")]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    long = f"{'Hund ' * 1100}\ta dog\n"
    for insert, message in (
        (long, "zoo: error: line 2: the text has 1,100 tokens; at most 1,000 are allowed. Split it into sentences"),
        (long * 2, "zoo: error: 2 of 5 lines could not be answered; see above"),
    ):
        (files / "long").write_text(whole.replace("\n", f"\n{insert}", 1), encoding="utf-8")
        assert main(["align", NAME, str(files / "long")]) == 2
        out, err = capsys.readouterr()
        assert out.splitlines() == [first, *[""] * insert.count("\n"), *others]
        assert err.splitlines()[-1] == message
    assert err.startswith("zoo: line 2: the text has 1,100") and "\nzoo: line 3: the text has 1,100" in err
    assert main(["align", NAME, str(files / "long"), "--json"]) == 2
    assert [json.loads(line)["source"] for line in capsys.readouterr().out.splitlines()] == [s for s, _ in PAIRS]
    gold = _written(files, "1-1\n" * 5)
    (files / "long").write_text(long + "der Hund\tthe dog\n" * 4, encoding="utf-8")
    assert _fails(capsys, NAME, files / "long", "--gold", gold).startswith("line 1: the text has 1,100 tokens")


def _written(folder, text):
    (folder / "wrong").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / "wrong"


def test_models_that_align_nothing(files, capsys, tmp_path):
    build(HAN).save_pretrained(tmp_path / "han")
    assert "is not a translator: it cannot align" in _fails(capsys, f"local-dir:{tmp_path}/han", files / "both")
