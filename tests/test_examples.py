"""examples/, except that of ONNX (tests/onnx_export)."""

import io
import subprocess
import sys

import pytest
from fakes import EXAMPLES, example

import zoo
from zoo.rebuilding.consensus import agreement, chosen, ngrams

CONSENSUS = EXAMPLES / "translate_by_consensus.py"
NAMES = ["luong_general.multi30k_en_de", "bahdanau.multi30k_en_de"]


@pytest.fixture(scope="module")
def consensus():
    return example("translate_by_consensus")


def test_the_translation_that_the_others_are_like_wins():
    best, value = chosen(["Ein Hund rennt.", "Eine Katze schläft.", "Ein Hund läuft."])
    assert best == "Ein Hund rennt." and value == pytest.approx(0.287, abs=1e-3)
    assert chosen(["Zwei Autos", "Ein Hund läuft.", "Ein Hund läuft."]) == (
        "Ein Hund läuft.",
        pytest.approx(0.5, abs=0.05),
    )
    assert chosen(["A", "A"]) == ("A", 0.0)  # too short for what is compared
    assert chosen(["A"]) == ("A", 1.0)  # nobody disagrees
    assert agreement(*map(ngrams, ("abcab", "ABCAB"))) == 1


@pytest.fixture
def printed(consensus, monkeypatch, capsys):
    """What the command prints for an input: output and the last line of its errors."""

    def run(*args, given=""):
        monkeypatch.setattr(sys, "argv", [str(CONSENSUS), *args])
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        capsys.readouterr()
        try:
            consensus.main()
        except SystemExit as end:
            assert end.code == 2
        return capsys.readouterr()

    return run


def test_as_a_command(printed):
    lines = ["A dog runs in the snow.", "", "Two men play music."]
    options = [*NAMES, "--beam-size", "2", "--length-penalty", "0", "1.2"]
    found = [pair.split("\t") for pair in printed(*options, given="\n".join(lines)).out.splitlines()]
    models = [(zoo.load(name), penalty) for name, penalty in zip(NAMES, (0, 1.2), strict=True)]
    for source, target in found:
        assert target in {
            model.translate(source, beam_size=2, length_penalty=penalty).text for model, penalty in models
        }
    assert [source for source, _ in found] == [lines[0], lines[2]]
    assert printed(*options, "--min-agreement", "1.1", given=lines[0]).out == ""
    assert "one for each of 2 models; got 3" in printed(*options, "0.6").err
    alone = subprocess.run([sys.executable, str(CONSENSUS), NAMES[0]], input="", capture_output=True, text=True)
    assert alone.returncode == 2 and "two models or more" in alone.stderr
