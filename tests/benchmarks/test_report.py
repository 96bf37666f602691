"""benchmarks/report.py: a page that a failed benchmark, and another processor, leave as it is."""

import subprocess
import sys
from pathlib import Path

import benchmark_scripts
import pytest
from benchmark_scripts import BENCHMARKS


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return benchmark_scripts.script("report")


@pytest.fixture
def run(report, monkeypatch, tmp_path):
    """Runs it with benchmarks that print a word, fail, or take too long, and gives the page."""

    def run(processor, only=(), **printed):
        def fake(words, **options):
            found = printed[Path(words[1]).stem]
            if found == "slow":
                raise subprocess.TimeoutExpired(words, options["timeout"])
            return subprocess.CompletedProcess(words, int(found == "fail"), f"{found} figures", f"Traceback\n{found}!")

        monkeypatch.setattr(report.subprocess, "run", fake)
        monkeypatch.setattr(report, "processor", lambda: processor)
        monkeypatch.setattr(sys, "argv", ["report.py", "--output", str(tmp_path / "speed.md"), "--only", *printed])
        code = report.main()
        page = tmp_path / "speed.md"
        return code, page.read_text() if page.exists() else ""

    return run


def test_a_section_for_each_processor(run):
    assert run("Zen 3", reading="old", captioning="old")[0] == 0
    code, page = run("Zen 4", reading="new")
    assert code == 0 and page.count("# Speed") == 1
    assert page.index("## Zen 4") < page.index("new figures") < page.index("## Zen 3") < page.index("old figures")
    assert page.count("old figures") == 2 and page.count("### Reading") == 2


def test_a_part_is_replaced_in_its_place(run):
    run("Zen 4", captioning="first", reading="first")
    _, page = run("Zen 4", captioning="second")
    assert page.count("### Captions") == 1 and page.count("figures") == 2
    assert page.index("second figures") < page.index("first figures")
    assert run("Zen 4", captioning="second") == (0, page)


def test_what_fails_leaves_its_earlier_figures(run, capsys):
    run("Zen 4", captioning="first", reading="first")
    code, page = run("Zen 4", captioning="fail", reading="slow", transformer="second")
    assert code == 1 and page.count("first figures") == 2 and "second figures" in page
    assert capsys.readouterr().err.splitlines() == [
        "captioning: fail!; the page keeps what it had",
        "reading: not done after 20 minutes; the page keeps what it had",
    ]


def test_hand_written_sections_stay(run, tmp_path):
    (tmp_path / "speed.md").write_text("# Speed\n\nold words\n\n## By hand\n\nA table.\n\n### Part\n\n1.\n")
    _, page = run("Zen 4", reading="new")
    assert page.endswith("## By hand\n\nA table.\n\n### Part\n\n1.\n") and "old words" not in page


def test_the_page_of_this_package_is_what_it_writes(report):
    page = (BENCHMARKS.parent / "docs" / "speed.md").read_text(encoding="utf-8")
    _, sections = report._split(page, "##")
    assert page == report.page_of(sections)
    assert {path.stem for path in BENCHMARKS.glob("*.py")} >= report.SCRIPTS.keys() >= report.PARTS.keys()
