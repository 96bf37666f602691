"""Lines made of the beginning of one line and the end of another."""

import pytest

from zoo.rebuilding.crossing import cross_file

LINES = """\
What is the capital of Austria ?

Who is the author of this book ?
who wrote nothing
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "lines").write_text(LINES)
    return [str(tmp_path / name) for name in ("lines", "crossed")]


def crossed(files, **options):
    cross_file(*files, **options)
    with open(files[1]) as file:
        return file.read().splitlines()


def test_two_lines_that_share_a_word(files, capsys):
    # cut before `is`, `the` or `of`; a cut before `is` and one before `the` give the same
    assert sorted(crossed(files)) == [
        "What is the author of this book ?",
        "What is the capital of this book ?",
        "Who is the author of Austria ?",
        "Who is the capital of Austria ?",
    ]
    assert capsys.readouterr().out == "4 crossings of 3 lines\n"


def test_no_more_than_wanted_and_none_too_long(files):
    assert len(crossed(files, count=2)) == 2
    assert sorted(crossed(files, longest=7)) == ["Who is the author of Austria ?", "Who is the capital of Austria ?"]


def test_the_seed_selects(files):
    assert crossed(files, count=1, seed=3) == crossed(files, count=1, seed=3)
    assert len({tuple(crossed(files, count=1, seed=seed)) for seed in range(9)}) > 1


def test_a_word_of_one_line_only_crosses_nothing(files, tmp_path):
    (tmp_path / "lines").write_text("one two three four\nfive six seven eight\n")
    with pytest.raises(ValueError, match="no two lines share a word within them"):
        crossed(files)
