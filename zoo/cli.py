"""The `zoo` command.

    zoo list                                            names, tasks, sizes, scores
    zoo info NAME                                       the card of a weight
    zoo predict NAME "A dog runs."                      translate, classify, complete, caption or answer; lines on standard input work too
    zoo serve NAME --port 8000                          the same over HTTP
    zoo demo                                            the models in the browser, where you can change their attention
    zoo align NAME de.txt en.txt                        word alignments of given translations
    zoo explain NAME                                    whether the attention of a weight explains its answers
    zoo recipes                                         the recipes; with a name, prints it
    zoo fit|validate|test --config NAME                 train or evaluate by a recipe
    zoo test NAME                                       the scores of a weight by its recipe, next to those of its card
    zoo calibrate --config NAME --weights local-dir:F   how far the answers of a weight can be trusted
    zoo rebuild NAME                                    make a weight again by the stages of its recipe, and compare the scores
    zoo compare --out FOLDER                            train several attention mechanisms by the same rules and compare them
    zoo export CHECKPOINT|NAME FOLDER                   weights of a checkpoint, or ONNX graphs of a weight
    zoo publish NAME|FOLDER ORG/REPO                    upload weights and card to the Hugging Face Hub
    zoo download NAME ...|all                           fetch weights ahead of time
    zoo cache                                           the fetched weights; `zoo cache clear` removes them
    zoo lesson list|open|check                          eight lessons as notebooks, with exercises
    zoo completion bash|zsh|fish                        a script with which the shell completes commands and names

A recipe is code: it may name any class of any installed package, with any arguments. A folder of weights is not code.
Each command takes --import MODULE, a module of your own with scores, kinds of attention or models.

Every mistake of a user ends as one line on standard error and exit code 2. A signal ends a command with exit code
128 + its number; training then prints how to resume it.
"""

import argparse
import errno
import importlib
import os
import signal
import sys
import warnings
from contextlib import nullcontext, suppress
from types import ModuleType
from typing import Any

from zoo.utils.ending import cleaning_up, say_stopped
from zoo.utils.modules import find_local_modules, imported, split_imports
from zoo.utils.purpose import predict_only
from zoo.utils.streams import prepare_streams
from zoo.utils.version import __version__
from zoo.utils.whole import BOTH, RUNTIME_VERBS, are_both, is_whole, require_whole

TRAINING = ("fit", "validate", "test", "calibrate")  # their arguments are LightningCLI's
VERBS = (  # in the order of the help; zoo/commands/arguments has a file for each of the others
    *("list", "info", "predict", "serve", "demo", "align", "explain", "recipes"),
    *TRAINING,
    *("rebuild", "compare", "export", "publish", "download", "cache", "lesson", "completion"),
)
PRINTS = ("list", "info", "predict", "align", "explain", "recipes", "completion")  # whose result is what they print
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # the device takes no more data
ADVICE = {
    errno.ENOENT: "no such file or folder",
    errno.EACCES: "permission denied; change the permissions, or give another path",
    errno.ENOTDIR: "a part of this path is a file, not a folder; give another path",
    errno.EISDIR: "it is a folder; give a file",
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The arguments; by default those of the process.

    Returns:
        The exit code: 0, or 2 after a mistake of the user, which one line on standard error explains.
    """
    if argv is None:  # else the streams are the caller's
        prepare_streams()
        _shorten_warnings()
    try:
        args, modules = split_imports(sys.argv[1:] if argv is None else argv)
        if are_both():
            print(f"zoo: {BOTH}", file=sys.stderr)
        if args and args[0] in VERBS and args[0] not in RUNTIME_VERBS:
            require_whole(f"zoo {args[0]}")
        if args and args[0] in TRAINING:
            from zoo.commands.training import train

            find_local_modules()
            with imported(modules):
                train(args)
        else:
            options = _parsed(args)
            if sys.stdout is None and options.verb in PRINTS:
                raise ValueError("stdout is closed; redirect it to a file")
            if argv is None and options.verb == "predict":  # given arguments, the caller may train later
                predict_only()
            # they handle signals themselves
            with imported(modules), nullcontext() if options.verb in ("serve", "rebuild") else cleaning_up():
                options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()  # so that a full disk still sets the exit code
    except BrokenPipeError:  # `zoo list | head`
        _drop_output()
    except (ValueError, OSError) as error:
        if os.environ.get("ZOO_DEBUG"):
            raise
        print(f"zoo: error: {_one_line(error)}", file=sys.stderr)
        if isinstance(error, OSError) and error.errno in FULL:
            with suppress(OSError, AttributeError):  # the rest of the buffer cannot be written either
                _drop_output()
        return 2
    except KeyboardInterrupt:
        say_stopped(signal.SIGINT)
        return 128 + signal.SIGINT
    return 0


def _shorten_warnings() -> None:
    """Makes warnings of this package, as of letters without a font, single lines, each said once.

    Others keep their place in the code.
    """
    usual, said = warnings.formatwarning, set[str]()

    def line(message: Warning | str, category: type[Warning], file: str, number: int, source: str | None = None) -> str:
        if category is UserWarning and file.startswith(os.path.dirname(__file__)):
            found = f"zoo: warning: {' '.join(str(message).split())}\n"
            is_new = found not in said
            said.add(found)
            return found if is_new else ""
        return usual(message, category, file, number, source)

    warnings.formatwarning = line


def _drop_output() -> None:
    """Sends what is left of standard output nowhere."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in FULL:
        what = f"{error.filename or 'the output'} could not be written ({error.strerror})"
        return f"{what}; make room, or choose another place"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {ADVICE.get(error.errno or 0, error.strerror)}"
    return " ".join(str(error).split()) or type(error).__name__


def _parsed(args: list[str]) -> argparse.Namespace:
    """Parses the arguments; texts may also follow the options, which argparse allows only from Python 3.13 on."""
    parser = _parser(args[0] if args and args[0] in VERBS else None)  # one verb is parsed sooner than all are built
    options, rest = parser.parse_known_args(args)
    texts = []
    if rest and "--" in args and hasattr(options, "text"):  # what follows it are texts, whatever they begin with
        place = args.index("--")
        options, rest = parser.parse_known_args(args[:place])
        texts = args[place + 1 :]
    if rest and hasattr(options, "settings"):  # of rebuild, for `zoo fit`
        options.settings, rest = rest, []
    if rest and (not hasattr(options, "text") or any(word.startswith("-") and word != "-" for word in rest)):
        hint = _nearest_option(parser, args[0], rest)
        if hasattr(options, "text") and not any(word.startswith("--") for word in rest):
            hint = "; a text that begins with - comes after --"
        parser.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
    if rest or texts:
        options.text = [*options.text, *rest, *texts]
    return options


def _nearest_option(parser: argparse.ArgumentParser, verb: str, rest: list[str]) -> str:
    """The option that the first unknown one may have meant, as the end of a message."""
    from difflib import get_close_matches  # late: only mistakes need it

    verbs = next(action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    unknown = next((word.partition("=")[0] for word in rest if word.startswith("--")), "")
    nearest = get_close_matches(unknown, verbs[verb]._option_string_actions, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


class _Parser(argparse.ArgumentParser):
    """Says that help or version could not be written, where argparse would end as if they were."""

    def _print_message(self, message: str, file: Any = None) -> None:
        print(message, end="", file=file or sys.stderr, flush=True)


def _parser(only: str | None = None) -> _Parser:
    """The parser of all verbs, or of one."""
    parser = _Parser(
        prog="zoo",
        description="Pretrained attention models from the papers, by name.",
        epilog="example:\n"
        '  zoo predict luong_general.multi30k_en_de "A dog runs in the snow." --plot alignment.png\n\n'
        "Set ZOO_DEBUG=1 to see the traceback of an error.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"attention-zoo {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    available = VERBS if is_whole() else RUNTIME_VERBS
    for verb in available if only is None else (only,):
        if verb in TRAINING:  # only for the list of commands: main() sends these to LightningCLI
            from zoo.commands.training import TRAINING as TEXTS

            what = TEXTS[verb]["what"]
            commands.add_parser(verb, help=what[0].lower() + what[1:-1])
        else:
            _add(commands, verb, importlib.import_module(f"zoo.commands.arguments.{verb}"))
    return parser


def _add(commands: "argparse._SubParsersAction[_Parser]", verb: str, described: ModuleType) -> None:
    """Adds the parser of a verb, which a module of zoo/commands/arguments describes."""
    summary = described.SUMMARY
    command = commands.add_parser(
        verb,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n  {described.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(verb=verb, run=described.run, all_verbs=_parser)
    # taken out before the arguments are parsed (zoo/utils/modules.py)
    command.add_argument("--import", metavar="MODULE", help="first import a module with classes of your own")
    described.add(command)


if __name__ == "__main__":
    sys.exit(main())
