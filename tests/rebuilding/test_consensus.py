"""Translations on which models agree become training pairs."""

from zoo.data.translation.pair_files import read_pairs
from zoo.rebuilding import consensus


def test_a_tab_in_a_line_makes_no_third_column(tmp_path, monkeypatch):
    """Readers of the pairs would take the end of the line for its translation."""
    source, target = tmp_path / "lines", tmp_path / "pairs.tsv"
    source.write_text("a dog\tin the snow\na cat\n")
    monkeypatch.setattr(consensus, "translations", lambda name, lines, *options: [line.upper() for line in lines])
    consensus.translate_file(str(source), str(target), ["model"])
    assert list(read_pairs(target, None)) == [("a dog in the snow", "A DOG IN THE SNOW"), ("a cat", "A CAT")]
