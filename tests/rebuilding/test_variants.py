"""Lines in which words are replaced by similar ones."""

import pytest

from zoo.rebuilding.variants import vary_file

VECTORS = """\
the 0 0 1
of 0 0.1 1
river 1 0 0
lake 0.9 0.1 0
stream 0.95 0 0.1
austria 0 1 0
france 0.1 0.9 0
: 0 1 0.1
seven 0.5 0.5 0.5
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "lines").write_text("Name the river of Austria ?\n\nthe the\nthe lake of Austria\n")
    (tmp_path / "vectors").write_text(VECTORS)
    return [str(tmp_path / name) for name in ("lines", "varied", "vectors")]


def varied(files, **options):
    vary_file(*files, **{"common": 2, "near": 2, **options})
    with open(files[1]) as file:
        return file.read().splitlines()


def test_words_become_their_neighbours_and_common_ones_stay(files, capsys):
    found = varied(files, copies=200, share=0.5)
    # of the two nearest words of Austria one is no word, and river's are lake and stream
    expected = {
        f"Name the {water} of {land} ?" for water in ("river", "lake", "stream") for land in ("Austria", "france")
    }
    expected |= {f"the {water} of {land}" for water in ("lake", "stream", "river") for land in ("Austria", "france")}
    assert sorted(found) == sorted(expected - {"Name the river of Austria ?", "the lake of Austria"})
    assert capsys.readouterr().out == "10 variants of 3 lines\n"


def test_no_variants(files):
    with pytest.raises(ValueError, match="lines: no variant of a line differs from all lines; give a larger share"):
        varied(files, share=0.0)


def test_the_seed_selects(files):
    assert varied(files, copies=4, seed=3) == varied(files, copies=4, seed=3)
    assert len({tuple(varied(files, copies=4, seed=seed)) for seed in range(9)}) > 1


def test_only_the_first_words_are_used(files):
    assert not any("france" in line for line in varied(files, words=6, copies=50, share=1.0))


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        ("the 0 0\nriver 1\n", "vectors, line 2: expected a word and its vector; 1 numbers, and line 1 has 2"),
        ("the 0 zero\n", "vectors, line 1: expected a word and its vector; could not convert"),
        ("", "has no word vectors"),
        ("a 1 1\nb 1 1\nzebra 1 1\nlion 1 2\n", "none of its first 80,000 words is a word of"),
    ],
)
def test_wrong_vectors(vectors, said, files, tmp_path):
    (tmp_path / "vectors").write_text(vectors)
    with pytest.raises(ValueError, match=said):
        varied(files)
