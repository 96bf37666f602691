"""A process in which `zoo` finds what Windows has: no POSIX modules, and an `os` and a `signal` without their POSIX half.

Only imports of zoo itself are changed, because the standard library of this system needs what it has.
"""

import builtins
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from zoo.cli import main as usual

MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
NAMES = {
    "os": """
        O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_SYNC WNOHANG WIFEXITED WEXITSTATUS WIFSIGNALED chown fork forkpty
        getegid geteuid getgid getloadavg getpgid getpgrp getuid killpg lockf major mkfifo mknod nice openpty
        posix_fadvise posix_fallocate pread preadv pwrite register_at_fork sched_getaffinity sched_setaffinity sched_yield
        sendfile setpgid setsid setuid statvfs sync sysconf uname wait wait3 wait4 fchmod fchown confstr ttyname
        memfd_create getxattr setxattr
    """.split(),
    "signal": """
        SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIG_BLOCK alarm getitimer
        pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo
    """.split(),
}


class _Partly(ModuleType):
    """A module without some of its names."""

    def __init__(self, module: ModuleType, absent: list[str], **others: Any) -> None:
        super().__init__(module.__name__)
        self.__dict__.update({name: value for name, value in vars(module).items() if name not in absent} | others)


def become_windows() -> None:
    """Makes the imports of zoo what they are on Windows, from now on."""
    found = {
        "os": _Partly(os, NAMES["os"], name="nt"),
        "signal": _Partly(signal, NAMES["signal"]),
        "sys": _Partly(sys, [], platform="win32"),
    }
    usual_import: Callable[..., Any] = builtins.__import__

    def imported(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if (globals or {}).get("__name__", "").partition(".")[0] == "zoo":
            if name in MODULES:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name in found:
                return found[name]
        return usual_import(name, globals, locals, fromlist, level)

    builtins.__import__ = imported
    for name in [name for name in sys.modules if name.partition(".")[0] == "zoo"]:
        del sys.modules[name]


def everything(folder: str, *commands: list[str]) -> None:
    """Imports every module of zoo, then runs commands, all as on Windows."""
    become_windows()
    zoo = importlib.import_module("zoo")
    names = [module.name for module in pkgutil.walk_packages(zoo.__path__, "zoo.") if module.name != "zoo.__main__"]
    for name in names:
        importlib.import_module(name)
    main = importlib.import_module("zoo.cli").main
    assert main is not usual and len(names) > 100
    os.chdir(folder)
    for command in commands:
        code = main(command)
        print(f"\n{command[0]} ended with {code}", flush=True)
