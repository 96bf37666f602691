"""Runs the benchmarks and writes docs/speed.md.

    python benchmarks/report.py [--root DATA] [--peers ENVIRONMENT] [--only NAME ...] [--output docs/speed.md]

Run it on an idle machine; it takes about half an hour on one core. --root and --peers are those of translation.py. The
page has a section for each kind of processor. Only the section of this one changes, after each benchmark: one that
fails or exceeds --minutes leaves its earlier figures, a line says why, and the exit code is 1.
"""

import argparse
import datetime
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import torch

from zoo.tasks.precision import lacks_bf16
from zoo.utils.atomic import write_text
from zoo.utils.cores import processor

HERE = Path(__file__).parent
INTRODUCTION = """# Speed

`python benchmarks/report.py` runs the benchmarks and writes this page: a section for each kind of processor, in it
each command with what it printed. Times are processor time, on one thread, so that other programs on the machine hardly
count; but they take caches and memory bandwidth, so on a busy machine two runs of the same command can differ by more
than a tenth. "Plain" and the other baselines are described at the top of each script; "peak" is memory, and "share" the
part of the limit, what the matrix products alone would reach. On your machine the ratios differ: run

| command | what it measures |
|---|---|
{table}
"""
SCRIPTS = {
    "translation": "training and decoding as shares of the matrix products alone; `--peers`: compared with OpenNMT-py",
    "precision": "test BLEU in fp32 and in bf16",
    "classification": "classifiers compared with their usual implementation",
    "captioning": "a captioner compared with the textbook loop",
    "transformer": "the Transformer compared with torch's layers",
    "language_models": "language models compared with their usual implementation",
    "reading": "readers compared with their usual implementation",
    "kernels": "each kernel: see [Kernels](kernels.md)",
    "runtime": "graphs compared with torch: `--speed`, `--equal`, `--start`, `--scores`, [ONNX](guides/onnx.md)",
    "transformer_engines": "the Transformer in each engine: [CTranslate2](guides/ctranslate2.md)",
    "serve": "the server under load with each engine: [Serving](guides/serving.md)",
    "demo": "the page: [Demo](guides/demo.md)",
    "scaling": "[how training scales](scaling.md), as does `host_operations.py`",
    "data": "five million sentence pairs or a million documents in constant memory",
    "bundles": "10,000 damaged bundles",
}
# script: title, arguments, whether it reads data sets
PARTS = {
    "translation": ("Translation with a recurrent decoder", "--threads 1 --batches 6 --rounds 1", True),
    "precision": ("Test BLEU in bf16", "--threads 1", True),
    "transformer": ("Transformer", "--threads 1 --rounds 3", False),
    "classification": ("Classifiers", "--threads 1 --batches 3 --rounds 2", False),
    "captioning": ("Captions", "--threads 1 --rounds 2", False),
    "language_models": ("Language models", "--threads 1 --rounds 2", False),
    "reading": ("Reading", "--threads 1 --batches 2 --rounds 2", False),
}


class FailedError(Exception):
    """A benchmark gave no figures; the message says why."""


def measured(name: str, more: list[str], seconds: float) -> str:
    """A part of the page: command, date and version, and what it prints.

    Raises:
        FailedError: it failed, or ran out of time.
    """
    words = [f"benchmarks/{name}.py", *PARTS[name][1].split(), *more]
    start = time.perf_counter()
    try:
        run = subprocess.run(
            [sys.executable, HERE / f"{name}.py", *words[1:]],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise FailedError(f"not done after {seconds / 60:.0f} minutes") from error
    if run.returncode:
        raise FailedError((run.stderr.strip() or f"exit code {run.returncode}").splitlines()[-1])
    print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    printed = run.stdout.rstrip().lstrip("\n")
    shown = shlex.join(word if not Path(word).is_absolute() else Path(word).name.upper() for word in words)
    return (
        f"`python {shown}`, {datetime.date.today().isoformat()}, torch {torch.__version__}:\n\n```text\n{printed}\n```"
    )


def of_this_processor() -> str:
    """Title of this processor's section."""
    bf16 = "no bf16" if lacks_bf16("cpu") else "bf16"
    return f"{processor()}, {torch.backends.cpu.get_cpu_capability()}, {bf16}"


def _split(text: str, level: str) -> tuple[str, dict[str, str]]:
    """What is before the first heading of this level, and title -> what is below it."""
    before, *rest = re.split(rf"^{level} (.+)\n", text, flags=re.MULTILINE)
    return before.strip(), {title: body.strip() for title, body in zip(rest[::2], rest[1::2])}


def with_part(page: str, section: str, title: str, body: str) -> str:
    """The page with a part in the section of a processor; all its other sections and parts stay."""
    _, sections = _split(page, "##")
    before, parts = _split(sections.get(section, ""), "###")
    parts[title] = body
    order = [title for title, *_ in PARTS.values()]
    known = {title: parts[title] for title in order if title in parts}
    sections[section] = "\n\n".join(
        [*([before] if before else []), *(f"### {title}\n\n{body}" for title, body in (known | parts).items())]
    )
    return page_of({section: sections[section]} | sections)  # the last measured first


def page_of(sections: dict[str, str]) -> str:
    """The page of sections, title -> text."""
    table = "\n".join(f"| `python benchmarks/{name}.py` | {what} |" for name, what in SCRIPTS.items())
    introduction = INTRODUCTION.format(table=table)
    return "\n".join([introduction, *(f"## {title}\n\n{body}\n" for title, body in sections.items())])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.environ.get("ZOO_DATA") or None)
    parser.add_argument("--peers")
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=20, help="at most for one benchmark")
    parser.add_argument("--output", type=Path, default=HERE.parent / "docs" / "speed.md")
    options = parser.parse_args()
    root = [] if options.root is None else ["--root", str(Path(options.root).resolve())]
    peers = [] if options.peers is None else ["--peers", str(Path(options.peers).absolute())]
    section, failed = of_this_processor(), False
    for name in options.only:
        title, _, reads = PARTS[name]
        try:
            body = measured(name, root * reads + peers * (name == "translation"), 60 * options.minutes)
        except FailedError as error:
            failed = True
            print(f"{name}: {error}; the page keeps what it had", file=sys.stderr, flush=True)
            continue
        page = options.output.read_text(encoding="utf-8") if options.output.exists() else ""
        write_text(options.output, with_part(page, section, title, body))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
