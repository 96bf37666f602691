"""Tables as spreadsheets save them."""

import pytest

from zoo.data import LabeledText
from zoo.data.common.tables import has_column, read_table


def _rows(folder, text, name="mine.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return list(read_table(folder / name, ["text", "label"]))


def test_a_csv_has_quoted_texts(tmp_path):
    text = 'id,label,text\n1,good,"Nice, ""really"".\nTwo lines."\n2,bad,plain\n\n'
    assert _rows(tmp_path, text) == [('Nice, "really".\nTwo lines.', "good"), ("plain", "bad")]
    long = "word " * 30_000
    assert _rows(tmp_path, f'label,text\ngood,"{long}"\n') == [(long, "good")]
    # with tabs it is a table without quoting, whatever its name
    assert _rows(tmp_path, 'label\ttext\ngood\t"a, b"\n') == [('"a, b"', "good")]
    assert _rows(tmp_path, 'label\ttext\ngood\t"a, b"\n', "mine.tsv") == [('"a, b"', "good")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label,text\ngood,a,b\n", "mine.csv, line 2: expected 2 comma-separated columns as in the first line; got 3"),
        ('label,text\ngood,"a" b\n', "mine.csv, line 2: .*; a .csv has commas, and texts with them in quotes"),
        (
            "label;text\ngood;a;b\n",
            "mine.csv, line 2: expected 2 semicolon-separated columns as in the first line; got 3",
        ),
        ("label,words\ngood,a\n", "mine.csv has no column 'text'; its first line names 'label', 'words'"),
        ("Label,Text\ngood,a\n", "its first line names 'Label', 'Text'; write 'text' for 'Text'"),
        ("a,b,c,d,e,f,g,h,i,j,k\n", "names 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', ...$"),
        (
            '[{"text": "a", "label": "b"}]',
            "mine.csv begins like JSON: write one object a line, and name the file .jsonl",
        ),
        ("label,text,text\ngood,a,b\n", "mine.csv has 2 columns 'text'; rename or remove all but one"),
        ("", "mine.csv is empty"),
        ("\n\n", "mine.csv is empty"),
        ("label,text\n\n", "mine.csv has a header and no row"),
        ("\nlabel,text\ngood,a\n", "mine.csv begins with an empty line; its first must name the columns"),
    ],
)
def test_a_csv_that_is_none(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        _rows(tmp_path, text)


def test_empty_lines_of_json_are_left_out(tmp_path):
    assert _rows(tmp_path, '\n{"text": "a", "label": "b"}\n\n', "mine.jsonl") == [("a", "b")]
    assert has_column(tmp_path / "mine.jsonl", "label") and not has_column(tmp_path / "mine.jsonl", "split")


def test_a_csv_of_a_spreadsheet_with_semicolons(tmp_path):
    text = 'label;text\ngood;"Nice; ""really"".\nTwo lines."\nbad;plain, with a comma\n'
    assert _rows(tmp_path, text) == [('Nice; "really".\nTwo lines.', "good"), ("plain, with a comma", "bad")]
    assert has_column(tmp_path / "mine.csv", "text") and not has_column(tmp_path / "mine.csv", "label;text")


def test_leftovers_of_spreadsheets(tmp_path):
    """Rows of separators alone, and a separator of another kind in the header."""
    assert _rows(tmp_path, "label,text,note\ngood,a,\n,,\n,,,,\nbad,b,\n") == [("a", "good"), ("b", "bad")]
    assert _rows(tmp_path, "label\ttext\ngood\ta\n\t\n", "mine.tsv") == [("a", "good")]
    assert _rows(tmp_path, "label;text;notes, more\ngood;a, b;c\n") == [("a, b", "good")]
    assert has_column(tmp_path / "mine.csv", "text") and has_column(tmp_path / "mine.csv", "notes, more")


@pytest.mark.parametrize("mark", ",;")
def test_a_table_with_another_name_than_its_form(tmp_path, mark):
    advice = f"it looks separated by '{mark}': name the file .csv, or separate by tabs"
    with pytest.raises(ValueError, match=f"mine.txt has no column 'text'; its first line names .*; {advice}"):
        _rows(tmp_path, f"text{mark}label\na{mark}good\n", "mine.txt")


def test_texts_of_a_csv(tmp_path):
    (tmp_path / "mine.csv").write_text('label,text\ngood,"a, b"\nbad,c\n')
    data = LabeledText(str(tmp_path / "mine.csv"))
    assert [(example.text, example.labels) for example in data.examples("train")] == [
        ("a, b", ("good",)),
        ("c", ("bad",)),
    ]
