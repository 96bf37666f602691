"""Equal training time, and the tables of several mechanisms, from results made by hand."""

from pathlib import Path

import numpy as np
import pytest
from comparison_fakes import result

from zoo.comparison import page, pictures, tables
from zoo.comparison.budgets import best_by, best_so_far, common_seconds, of_one_machine
from zoo.comparison.files import RECIPES
from zoo.comparison.recipes import Recipes
from zoo.comparison.results import Results, Row, Run
from zoo.comparison.significance import Bootstrap
from zoo.comparison.tasks.translation import TranslationTask


def run(*curve, name="dot", seed=1, **more):
    """A run with a validation curve of (seconds, BLEU)."""
    found = result(name, seed, 30.0) | more
    found["training"]["validation"] = [dict(step=n, seconds=time, bleu=bleu) for n, (time, bleu) in enumerate(curve)]
    return Run(Path("."), found, TranslationTask())


def test_the_best_by_a_time():
    one = run((10, 5.0), (20, 9.0), (30, 8.0), (40, 12.0))
    assert [best_by(one, seconds) for seconds in (9.9, 10, 35, 1000)] == [None, 5.0, 9.0, 12.0]
    assert best_so_far(one) == [(10, 5.0), (20, 9.0), (30, 9.0), (40, 12.0)]
    one.result["training"]["validation"][0]["bleu"] = None
    assert best_by(one, 10) is None, "a score that is not finite"


def test_the_common_time_ends_with_the_fastest():
    slow, quick = Row("slow", [run((50, 1.0))]), Row("quick", [run((20, 1.0)), run((10, 1.0), (30, 2.0))])
    assert common_seconds([slow, quick]) == 25.0
    assert common_seconds([]) is None and common_seconds([Row("empty", [run()])]) is None


def test_times_of_another_machine_are_not_compared():
    """Neither in the table nor in the common time, which would otherwise be that of the row from elsewhere."""
    rows = [
        Row("dot", [run((50, 1.0), (600, 3.0), name="dot"), run((660, 2.0), name="dot", seed=2)]),
        Row("general", [run((30, 1.0), name="general", hardware="another")]),
        Row("none", [run((600, 1.0), name="none"), run((60, 1.0), name="none", seed=2, threads=7)]),
        Row("location", [run((700, 4.0), name="location")]),
    ]
    compared = of_one_machine(rows)
    assert [(row.name, len(row.runs)) for row in compared] == [("dot", 2), ("none", 1), ("location", 1)]
    assert of_one_machine(rows[1:2]) == rows[1:2] and of_one_machine([]) == []
    text = page.text(page.Study(Recipes(RECIPES), Results(rows)))
    (table,) = [part for part in text.split("\n## ") if part.startswith("With equal training time")]
    assert "half and all of 10.0 minutes" in table and "are not here; of `general` there are no others." in table
    assert "| `dot` |" in table and "| `none` | – | – | – | 1.0 |" in table and "| `general` |" not in table
    assert "of the 4 of 6 trainings on CPU with 1 thread(s)" in text
    speeds = [line.split(" | ")[-3:] for line in text.splitlines() if line.startswith("| `general` | no | 1 |")]
    assert speeds == [["–", "–", "– |"]]


def test_table_at_equal_time():
    """After a quarter, half and all of it; a mechanism with a seed that was not validated by then has no score."""
    slow = Row("slow", [run((60, 20.0), (600, 40.0), name="slow")])
    quick = Row("quick", [run((20, 29.0), (60, 30.0), name="quick"), run((14, 10.0), (60, 32.0), name="quick", seed=2)])
    late = Row("late", [run((60, 99.0), name="late"), run((61, 99.0), name="late", seed=2)])
    rows = [late, slow, quick]
    head, _, *lines = tables.time_table(rows, tables.names(rows, ["slow", "slow_input_feeding"], {}), 60).splitlines()
    assert head == (
        "| mechanism | input feeding | after 0.2 min | after 0.5 min | BLEU after 1.0 min | BLEU at the end "
        "| minutes to the end |"
    )
    assert lines == [
        "| `quick` | – | – | 19.5 | 31.0 ± 12.7 | 31.0 | 1.0 |",
        "| `slow` | no | – | – | 20.0 | 40.0 | 10.0 |",
        "| `late` | – | – | – | – | 99.0 | 1.0 |",
    ]


def test_tables_of_the_bootstrap(tmp_path, monkeypatch):
    samples = np.array([[3.0, 1.0], [3.0, 2.0], [1.0, 2.0], [3.0, 1.0]])
    found = Bootstrap(["dot", "none"], np.array([2.5, 1.5]), samples, samples.mean(0))
    rows = [Row(name, [run(name=name)]) for name in ("dot", "none", "other")]
    lines = tables.rank_table(rows, tables.names(rows, [], {}), found).splitlines()[2:]
    assert lines == ["| `dot` | – | 2.5 | 75 | 1–2 |", "| `none` | – | 1.5 | 25 | 1–2 |"]
    rows[0] = Row("dot", [run((60, score), name="dot", seed=seed) for seed, score in enumerate((1.0, 2.0))])
    for seed, score in enumerate((2.0, 3.0)):
        rows[0].results[seed]["test"]["bleu"] = score
    head, _, *lines = tables.rank_table(rows, tables.names(rows, [], {}), found).splitlines()
    assert "| test BLEU | SD of the seeds | best (%) |" in head
    assert lines == ["| `dot` | – | 2.5 | 0.7 | 75 | 1–2 |", "| `none` | – | 1.5 | – | 25 | 1–2 |"]
    assert tables.against(rows[:1], rows[1:2], found).splitlines()[-1] == (
        "| `dot` | `none` | +1.0 | -0.8 to +2.0 | 0.800 | 0.800 |"
    )
    three = Bootstrap(["new", "dot", "none"], np.zeros(3), np.zeros((1, 3)), np.zeros(3))
    values = {("new", "dot"): 0.01, ("new", "none"): 0.04, ("dot", "none"): 0.001}
    with monkeypatch.context() as patch:  # a newcomer asks about its own pairs only
        patch.setattr(Bootstrap, "p_value", lambda self, *pair, apart=False: values[pair[:2]])
        rows = [Row(name, [run(name=name)]) for name in ("new", "dot", "none")]
        lines = tables.against(rows[:1], rows[1:], three).splitlines()[2:]
    assert [line.split(" | ")[-2:] for line in lines] == [["0.010", "0.020 |"], ["0.040", "0.040 |"]]
    pairs = tables.write_pairs(found, tmp_path / "pairs.csv").read_text().splitlines()
    assert pairs[1:] == ["dot,none,1.00,-0.85,2.00,0.800000,0.800000", "none,dot,-1.00,-2.00,0.85,0.800000,0.800000"]
    assert tables.write_ranks(found, tmp_path / "ranks.csv").read_text().splitlines() == [
        "mechanism,1,2", "dot,0.750,0.250", "none,0.250,0.750",
    ]  # fmt: skip


def test_curve_over_the_number_of_pairs(tmp_path, monkeypatch):
    """A mechanism that some sizes lack has a dash there, and a shorter line."""
    monkeypatch.setattr(pictures, "DPI", 20)
    sizes = {
        1000: [Row("dot", [run(name="dot"), run(name="dot", seed=2)])],
        29000: [Row("none", [run(name="none")]), Row("dot", [run(name="dot")])],
    }
    lines = tables.size_table(sizes, lambda rows: tables.names(rows, [], {})).splitlines()
    assert lines[0] == "| mechanism | input feeding | 1,000 pairs | 29,000 pairs |"
    assert lines[2:] == ["| `none` | – | – | 30.0 |", "| `dot` | – | 30.0 ± 0.0 | 30.0 |"]
    assert pictures.plot_sizes(sizes, tmp_path / "sizes.png").read_bytes().startswith(b"\x89PNG")


def test_how_long_the_trainings_were(tmp_path):
    """With the rule of HalveThenStop, and with a plain number of epochs."""
    rows = [Row("dot", [run(name="dot")]), Row("none", [run(name="none")])]
    rows[0].results[0]["training"]["steps"] = 30
    shipped = page.Study(Recipes(RECIPES), Results(rows))
    assert page._budget(shipped) == (
        "Each training ends when validation BLEU stops rising: 2 validations without a rise halve the learning rate, and "
        "after 3 halvings without a rise it stops. That took 10 to 30 steps, at most 6 epochs; 2 of 2 trainings reached "
        "that limit.\n"
    )
    (tmp_path / "base.yaml").write_text("trainer: {max_epochs: 6}\nmodel: {}\n")
    plain = page.Study(Recipes(tmp_path), Results(rows))
    assert page._budget(plain) == "Budget: 6 epochs, 10 to 30 steps, 600,000 target tokens.\n"


@pytest.mark.parametrize(("share", "text"), [(None, "–"), (0.0, "0"), (0.004, "<1"), (0.256, "26"), (1.0, "100")])
def test_percent(share, text):
    assert tables.percent(share) == text
