"""What a command imports only when it needs it. The server of `forks` imports this last, so that its forks need not."""

import atexit
import gc
import sys

BEFORE = frozenset(sys.modules)  # what is there when all of the package that trains is

import matplotlib.backends.backend_svg  # noqa: E402, F401
import sacrebleu  # noqa: E402, F401
import sacremoses  # noqa: E402, F401

import zoo.commands.align  # noqa: E402
import zoo.commands.predict  # noqa: E402, F401

gc.freeze()  # else each garbage collection of a fork looks through all of this, and so copies it
atexit.register(gc.unfreeze)  # else nanobind reports leaks at the end of the server
