"""The `zoo` command.

    zoo list                                            names, tasks, sizes, scores
    zoo info NAME                                       the card of a weight
    zoo predict NAME "A dog runs."                      translate, classify, complete or caption; lines on standard input work too
    zoo serve NAME --port 8000                          the same over HTTP
    zoo align NAME de.txt en.txt                        which words of given translations belong together
    zoo fit|validate|test --config recipes/NAME.yaml    train or evaluate by a recipe
    zoo compare --out FOLDER                            train all attention mechanisms with one budget and compare them
    zoo publish NAME|FOLDER ORG/REPO                    send weights and card to the Hugging Face Hub

A recipe is code: it names classes and their arguments, any of any installed package. A folder of weights is none.

Whatever a user can get wrong ends as one line on standard error and exit code 2. A signal ends a command with exit code
128 + its number; a training then says how to resume it.
"""

import argparse
import errno
import os
import signal
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.bundles.card import split_card
from zoo.bundles.files import Bundle, local_dir, replaceable
from zoo.bundles.publish import Package, check_repo_id, prepare, publish
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.atomic import target_folder
from zoo.utils.ending import cleaning_up, say_stopped
from zoo.utils.extras import require
from zoo.utils.version import __version__

PACKAGE = Path(__file__).parent
# Beside the package in a checkout, inside it in an installed wheel.
CARDS = (PACKAGE if (PACKAGE / "model_cards").is_dir() else PACKAGE.parent) / "model_cards"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # nothing more can be written there
ADVICE = {
    errno.ENOENT: "no such file or folder",
    errno.EACCES: "permission denied; change its rights, or give another file or folder",
    errno.ENOTDIR: "a part of this path is a file, and no folder; give another place",
    errno.EISDIR: "it is a folder; give a file",
}
TRAINING_HELP = """\
usage: zoo {verb} --config RECIPE.yaml [--SETTING VALUE ...]

{what}

  --config FILE         recipe; several are merged, later ones win. A recipe is code: it may name any class of any installed
                        package with any arguments, so use only recipes that you have read, or whose author you trust
  --weights NAME        start from a pretrained weight (zoo list) instead of the recipe's fresh model
  --ckpt_path PATH      {ckpt}
  --seed_everything N   seed (default 0)
  --trainer.KEY VALUE   e.g. --trainer.max_epochs 5 --trainer.precision bf16-mixed --trainer.devices 2
  --model.KEY VALUE     an argument of the recipe's model, e.g. --model.dropout 0.3
  --optimizer.KEY VALUE, --lr_scheduler.KEY VALUE
                        e.g. --optimizer.lr 0.0005 --lr_scheduler.warmup_steps 100
  --data.KEY VALUE      an argument of the recipe's data, e.g. --data.root /data/multi30k
  --print_config        print the complete configuration and stop
  --help-all            every setting of the trainer

Checkpoints (the best and the last) and logs go to runs/<name of the recipe>/.

example:
  {example}
"""
TRAINING = {
    "fit": dict(
        what="Train the model of a recipe, with validation after each epoch.",
        ckpt="checkpoint to resume from; `last`: the newest of this recipe",
        example="zoo fit --config recipes/luong_dot.dates.yaml\n"
        "  zoo fit --config recipes/luong_dot.dates.yaml --ckpt_path last     # go on after an interruption",
    ),
    "validate": dict(
        what="Compute the validation metrics.",
        ckpt="checkpoint to evaluate; `best` or `last`: of this recipe",
        example="zoo validate --config recipes/luong_dot.dates.yaml --ckpt_path best",
    ),
    "test": dict(
        what="Compute the test metrics, e.g. those on a card.",
        ckpt="checkpoint to evaluate; `best` or `last`: of this recipe",
        example="zoo test --config recipes/luong_dot.dates.yaml --weights luong_dot.dates",
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The arguments; by default those of the process.

    Returns:
        The exit code: 0, or 2 for anything the user got wrong (then one line on standard error says what).
    """
    args = sys.argv[1:] if argv is None else argv
    try:
        if args and args[0] in TRAINING:
            _train(args)
        else:
            options = _parsed(args)
            with nullcontext() if options.run is _serve else cleaning_up():  # a server ends in its own way
                options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()  # a full disk is an error here, not after the exit code
    except BrokenPipeError:  # `zoo list | head`
        _drop_output()
    except (ValueError, OSError) as error:
        if os.environ.get("ZOO_DEBUG"):
            raise
        print(f"zoo: error: {_one_line(error)}", file=sys.stderr)
        if isinstance(error, OSError) and error.errno in FULL:
            with suppress(OSError, AttributeError):  # what is left of the output cannot be written either
                _drop_output()
        return 2
    except KeyboardInterrupt:
        say_stopped(signal.SIGINT)
        return 128 + signal.SIGINT
    return 0


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
    """Parses; texts may also stand behind the options, which argparse expects only from Python 3.13 on."""
    parser = _parser()
    options, rest = parser.parse_known_args(args)
    if rest and (not hasattr(options, "text") or any(word.startswith("-") and word != "-" for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.text = [*options.text, *rest]
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zoo",
        description="Pretrained attention models from the papers, by name.",
        epilog="example:\n"
        '  zoo predict luong_general.multi30k_en_de "A dog runs in the snow." --plot alignment.png\n\n'
        "Set ZOO_DEBUG=1 to see the traceback of an error.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"attention-zoo {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, run: Any, summary: str, example: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(run=run)
        return command

    command = add("list", _list, "list the pretrained models", "zoo list 'luong*'")
    command.add_argument("pattern", nargs="?", default="*", help="shell pattern of the names (default: all)")
    command.add_argument("--markdown", action="store_true", help="as a Markdown table, like the one in the README")

    command = add("info", _info, "print the card of a model", "zoo info luong_dot.dates")
    command.add_argument("name", help="a name of `zoo list`")

    command = add(
        "predict",
        _predict,
        "translate, classify or complete texts, or caption images, with a pretrained model",
        'zoo predict luong_general.multi30k_en_de "A dog runs in the snow." --plot alignment.png\n'
        "  zoo predict luong_general.multi30k_en_de --json < english.txt > german.jsonl\n"
        "  zoo predict han.imdb review.txt another.txt --html review.html\n"
        "  zoo predict show_attend_tell_soft.flickr8k photo.jpg --plot photo.png\n"
        '  zoo predict local-dir:my_reader --document story.txt "Then XXXXX ran home." --plot answer.png',
    )
    command.add_argument("name", help="a name of `zoo list`, local-dir:FOLDER or hf-hub:...@REVISION")
    command.add_argument(
        "text",
        nargs="*",
        help="texts (to a classifier also files, and - for all of standard input; to a model of pairs two texts each), or image files "
        "and folders of them; without any, lines are read from standard input",
    )
    command.add_argument("--json", action="store_true", help="one JSON object a line, attention included")
    command.add_argument(
        "--plot", metavar="FILE", help="draw the attention (FILE-2 and so on for further texts or images)"
    )
    command.add_argument("--html", metavar="FILE", help="classifiers, captioners and readers: the same as a web page")
    command.add_argument(
        "--document",
        metavar="FILE",
        help="readers: the document (or its text, or -) that the queries, with XXXXX for a word, are about",
    )
    command.add_argument(
        "--candidates", metavar="W|W|...", help="readers: words to choose from (default: all words of the document)"
    )
    command.add_argument(
        "--beam-size",
        type=int,
        metavar="K",
        help="translation, completion and captions: 1 is greedy search (default: the model's own)",
    )
    command.add_argument(
        "--n-best",
        type=int,
        metavar="N",
        help="translation, completion and captions: print the N best, each with its score",
    )

    command = add(
        "serve",
        _serve,
        "answer requests for a pretrained model over HTTP, several at once (needs the extra `serve`)",
        "zoo serve luong_general.multi30k_en_de --port 8000\n"
        "  curl -H 'Content-Type: application/json' -d '{\"text\": \"A dog runs.\"}' http://127.0.0.1:8000/predict\n"
        "  curl http://127.0.0.1:8000/info                   # the fields that this model takes, and their limits",
    )
    command.add_argument("name", help="a name of `zoo list`, local-dir:FOLDER or hf-hub:...@REVISION")
    command.add_argument("--port", type=int, default=8000, help="(default: %(default)s)")
    command.add_argument(
        "--host",
        choices=("127.0.0.1", "0.0.0.0", "::"),
        default="127.0.0.1",
        help="0.0.0.0 and :: let other machines in (default: 127.0.0.1, only this one: there is no encryption, and a key is asked for "
        "only if ZOO_API_KEY is set, then in the header X-API-Key)",
    )
    command.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers and proxies call this server, or whose pages may ask it; * allows any (default: localhost and "
        "addresses, and no pages of others); may be given several times",
    )
    command.add_argument(
        "--max-batch",
        type=int,
        default=16,
        metavar="N",
        help="texts, images or questions that are answered together (default: %(default)s)",
    )
    command.add_argument(
        "--batch-wait-ms",
        type=float,
        default=5.0,
        metavar="MS",
        help="how long a request waits for others (default: %(default)s)",
    )
    command.add_argument(
        "--max-items",
        type=int,
        default=32,
        metavar="N",
        help="texts, images or questions in one request (default: %(default)s)",
    )
    command.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="length of one text (default: 256 for translation, 5,000 for classification, 1,000 for completion, 2,000 for a document that "
        "is asked about)",
    )
    command.add_argument(
        "--max-work",
        type=int,
        default=20_000,
        metavar="N",
        help="tokens times beam size of all texts in one request; an eighth of it for one text (default: %(default)s)",
    )
    command.add_argument(
        "--max-bytes", type=int, metavar="N", help="size of one request (default: 1 MiB, 16 MiB for images)"
    )
    command.add_argument(
        "--workers", type=int, default=1, metavar="N", help="copies of the model on each device (default: %(default)s)"
    )
    command.add_argument("--devices", default="cpu", help="cpu, auto or a number of GPUs (default: %(default)s)")
    command.add_argument(
        "--timeout", type=float, default=30.0, metavar="S", help="seconds for one request (default: %(default)s)"
    )

    command = add(
        "align",
        _align,
        "say which words of given translations belong together, or how often that is wrong",
        "zoo align luong_general.multi30k_de_en de.txt en.txt > links.txt\n"
        "  zoo align luong_general.multi30k_de_en de.txt en.txt --gold gold.talp",
    )
    command.add_argument("name", help="a translator: a name of `zoo list`, local-dir:FOLDER or hf-hub:...@REVISION")
    command.add_argument("source", help="sentences, one a line, with spaces between words; .gz and .xz too")
    command.add_argument(
        "target", nargs="?", help="their translations (default: SOURCE holds both, with a tab between them)"
    )
    command.add_argument(
        "--gold",
        metavar="FILE",
        help="print the alignment error rate: a line a pair, i-j for a sure and ipj for a possible link, from 1",
    )
    command.add_argument("--json", action="store_true", help="one JSON object a line, attention included")
    command.add_argument("--plot", metavar="FILE", help="draw the attention of the first pair that has words")

    for name, texts in TRAINING.items():  # only for the list of commands: main() sends these to LightningCLI
        commands.add_parser(name, help=texts["what"][0].lower() + texts["what"][1:-1])

    command = add(
        "compare",
        _compare,
        "train all attention mechanisms on Multi30k with one budget, and write a table and a plot of them",
        "zoo compare --out runs/comparison --data.root DATA\n"
        "  zoo compare --out runs/comparison --seeds 1 2 3 --jobs 4      # goes on where it stopped\n"
        "  zoo compare --out runs/comparison --report                    # only the table and the plot",
    )
    command.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="folder of trainings and results; what is there is not done again",
    )
    command.add_argument(
        "--data.root",
        dest="root",
        metavar="DATA",
        help="folder that holds the data (default: ZOO_DATA, else downloaded)",
    )
    command.add_argument("--only", nargs="+", metavar="NAME", help="mechanisms: names of the recipes (default: all)")
    command.add_argument(
        "--seeds", nargs="+", type=int, default=[1], metavar="N", help="one training each (default: 1)"
    )
    command.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help="the budget, with which the schedule is stretched (default: base.yaml's)",
    )
    command.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="trainings at a time, on the GPUs in turn (default: %(default)s)",
    )
    command.add_argument(
        "--threads", type=int, metavar="N", help="of each training (default: all processors, shared out)"
    )
    command.add_argument("--device", choices=("cpu", "cuda"), help="(default: cuda where there is a GPU)")
    command.add_argument("--recipes", metavar="FOLDER", help="other recipes: a base.yaml and a file for each mechanism")
    command.add_argument(
        "--report", action="store_true", help="train nothing, write table and plot of the results that are there"
    )
    command.add_argument(
        "--page", metavar="FOLDER", help="where README.md and its plot go (default: the folder of the results)"
    )

    command = add(
        "export",
        _export,
        "turn a training checkpoint, or the mean of several, into a folder of weights (fp16), or a model into ONNX "
        "graphs",
        "zoo export runs/luong_dot.dates/checkpoints/best.ckpt my_weights\n"
        '  zoo predict local-dir:my_weights "3 May 1995"\n'
        "  zoo export one/checkpoints/best.ckpt two/checkpoints/best.ckpt mean_of_both\n"
        "  zoo export luong_general.multi30k_en_de graphs --format onnx",
    )
    command.add_argument(
        "model",
        nargs="+",
        help="a checkpoint of `zoo fit`, a name of `zoo list`, local-dir:FOLDER or hf-hub:...@REVISION; of several "
        "that began as one model the mean of the weights is exported",
    )
    command.add_argument("folder", help="new folder")
    command.add_argument(
        "--format",
        choices=("bundle", "onnx"),
        default="bundle",
        help="onnx needs the extra `onnx` (default: %(default)s)",
    )

    command = add(
        "publish",
        _publish,
        "send weights and their card to the Hugging Face Hub, in one commit",
        "zoo publish my_weights my-name/my-model --dry-run\n  zoo publish my_weights my-name/my-model --private",
    )
    command.add_argument("source", help="a folder of weights (or local-dir:FOLDER), or a name of `zoo list`")
    command.add_argument("repo", metavar="ORG/REPO", help="repository on the Hub; created if it does not exist")
    command.add_argument("--private", action="store_true", help="create it as a private repository")
    command.add_argument(
        "--dry-run", action="store_true", help="check everything and show what would be sent; contacts nothing"
    )
    command.add_argument("--replace-card", action="store_true", help="also replace a README.md that people wrote there")
    return parser


def read_card(name: str) -> tuple[dict[str, Any], str]:
    """The YAML front matter and the text of a model's card."""
    path = CARDS / f"{name}.md"
    return split_card(path.read_text(encoding="utf-8"), path)


def _list(options: argparse.Namespace) -> None:
    names = registry.list_models(options.pattern)
    if not names and options.pattern != "*":
        raise ValueError(f"no model matches '{options.pattern}'; `zoo list` shows all")
    rows = [("NAME", "TASK", "PARAMETERS", "SIZE", "SCORE")]
    for name in names:
        card, _ = read_card(name)
        folder = registry.BUNDLED / name
        size = sum(file.stat().st_size for file in folder.iterdir()) if folder.is_dir() else None
        main_score = card["scores"][0]
        rows.append(
            (
                name,
                card["task"],
                _in_millions(card["parameters"]),
                "on the Hub" if size is None else f"{size / 1e6:.1f} MB",
                f"{main_score['metric']} {main_score['value']} ({main_score['split']})",
            )
        )
    if options.markdown:
        rows = [tuple(map(str.lower, rows[0])), ("---", "---", "---:", "---:", "---")] + [
            (f"[`{r[0]}`](model_cards/{r[0]}.md)", *r[1:]) for r in rows[1:]
        ]
        print("\n".join(f"| {' | '.join(row)} |" for row in rows))
        return
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    for row in rows:
        cells = [cell.rjust(w) if i in (2, 3) else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def _in_millions(n: int) -> str:
    return f"{n / 1e6:.1f} M" if n >= 1e6 else f"{n / 1e3:.0f} k"


def _info(options: argparse.Namespace) -> None:
    registry.entry(options.name)  # the nearest names, if unknown
    print((CARDS / f"{options.name}.md").read_text(encoding="utf-8").rstrip())


def _predict(options: argparse.Namespace) -> None:
    from zoo.commands.predict import run

    run(options)


def _serve(options: argparse.Namespace) -> None:
    require("serve", "`zoo serve`")
    from zoo.serving import run

    is_name = not options.name.startswith(("local-dir:", "hf-hub:"))
    run(options, read_card(registry.entry(options.name).name)[0] if is_name else {})


def _align(options: argparse.Namespace) -> None:
    from zoo.commands.align import run

    run(options)


def _compare(options: argparse.Namespace) -> None:
    from zoo.comparison.jobs import run

    run(options)


def _export(options: argparse.Namespace) -> None:
    if options.format == "onnx":
        require("onnx", "export to ONNX")
        from zoo.onnx_export import replaceable_graphs

        target_folder(options.folder, replaceable_graphs)  # before any work
    else:
        target_folder(options.folder, replaceable)
    from zoo.commands.average import average
    from zoo.training.checkpoints import model_of

    model = average(
        [model_of(source) if _is_checkpoint(source) else registry.load(source) for source in options.model],
        options.model,
    )
    if options.format == "onnx":
        _export_onnx(model, options.folder, options.model[0])
        return
    folder = model.save_pretrained(options.folder, half=True, golden=True)
    for name in sorted(os.listdir(folder)):
        print(f"{name:24}{(folder / name).stat().st_size:>12,} bytes")
    print(f"sha256 of config.json, which lists those of the others: {Bundle(folder).config_sha256}")


def _export_onnx(model: Any, folder: str, source: str) -> None:
    from zoo.onnx_export import export_onnx

    written = export_onnx(model, folder, source)
    print("\n".join(f"{file.name:20}{file.stat().st_size / 1e6:7.2f} MB" for file in sorted(written.iterdir())))


def _is_checkpoint(source: str) -> bool:
    return source.endswith(".ckpt") or (Path(source).exists() and not Path(source).is_dir())


def package(source: str, repo_id: str) -> Package:
    """What `zoo publish` would send: of a name of `zoo list`, or of a folder (local-dir:FOLDER or FOLDER)."""
    check_repo_id(repo_id)
    if source in registry.TABLE:
        name, card, bundle = source, CARDS / f"{source}.md", registry.open_bundle(source, golden=True)
    elif source.startswith("local-dir:") or "/" in source or Path(source).is_dir():
        name, card, bundle = None, None, local_dir(source.removeprefix("local-dir:"))
    else:
        raise registry.unknown(source)
    return prepare(bundle, registry.model_class(bundle.class_path), repo_id, name, card)


def _publish(options: argparse.Namespace) -> None:
    found = package(options.source, options.repo)
    if options.dry_run:
        print(f"{found.table()}\n\nnothing was sent (--dry-run)")
    else:
        print(publish(found, private=options.private, replace_card=options.replace_card))


def _train(args: list[str]) -> None:
    verb = args[0]
    if {"-h", "--help"} & set(args):
        print(TRAINING_HELP.format(verb=verb, **TRAINING[verb]))
        return
    for option, value in zip(args, [*args[1:], ""]):
        if option.startswith("--config"):
            file = option.partition("=")[2] or value
            if "://" in file:
                raise ValueError(
                    f"--config {file}: a recipe is code and is read from this machine only; download it and read it "
                    "first"
                )
    from zoo.training.lightning_cli import run

    keep_freed_memory()
    run(["--help" if arg == "--help-all" else arg for arg in args])


if __name__ == "__main__":
    sys.exit(main())
