"""The `zoo` command.

    zoo list                                            names, tasks, sizes, scores
    zoo info NAME                                       the card of a weight
    zoo predict NAME "A dog runs."                      translate, classify, complete or caption; lines on standard input work too
    zoo serve NAME --port 8000                          the same over HTTP
    zoo align NAME de.txt en.txt                        word alignments of given translations
    zoo recipes                                         the recipes; with a name, prints it
    zoo fit|validate|test --config NAME                 train or evaluate by a recipe
    zoo calibrate --config FILE --weights local-dir:F   how far the answers of a weight can be trusted
    zoo compare --out FOLDER                            train all attention mechanisms with the same budget and compare them
    zoo publish NAME|FOLDER ORG/REPO                    upload weights and card to the Hugging Face Hub
    zoo download NAME ...|all                           fetch weights ahead of time
    zoo cache                                           the fetched weights; `zoo cache clear` removes them
    zoo completion bash|zsh|fish                        a script with which the shell completes commands and names

A recipe is code: it may name any class of any installed package, with any arguments. A folder of weights is not code.
Each command takes --import MODULE, a module of your own with scores, kinds of attention or models.

Every mistake of a user ends as one line on standard error and exit code 2. A signal ends a command with exit code
128 + its number; training then prints how to resume it.
"""

import argparse
import errno
import os
import re
import signal
import sys
from contextlib import nullcontext, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.bundles.card import generated_card, split_card
from zoo.bundles.files import README, Bundle, local_dir, read_text, replaceable
from zoo.bundles.publish import Package, check_repo_id, prepare, publish
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.atomic import target_folder
from zoo.utils.ending import cleaning_up, say_stopped
from zoo.utils.extras import require
from zoo.utils.modules import find_local_modules, imported, split_imports
from zoo.utils.purpose import predict_only
from zoo.utils.shipped import shipped
from zoo.utils.version import __version__

CARDS = shipped("model_cards")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # the device takes no more data
ADVICE = {
    errno.ENOENT: "no such file or folder",
    errno.EACCES: "permission denied; change the permissions, or give another path",
    errno.ENOTDIR: "a part of this path is a file, not a folder; give another path",
    errno.EISDIR: "it is a folder; give a file",
}
TRAINING_HELP = """\
usage: zoo {verb} --config RECIPE [--SETTING VALUE ...]

{what}

  --config RECIPE       a file, or a name of `zoo recipes`; several are merged, later ones win. A recipe is code: it may name
                        any class of any installed package with any arguments, so use only recipes that you have read or
                        whose author you trust
  --import MODULE       first import a module of your own, e.g. one with scores and models (docs/guides/own_mechanism.md)
  --weights NAME        start from a pretrained weight (zoo list) instead of the recipe's untrained model
  --ckpt_path PATH      {ckpt}
  --seed_everything N   seed (default 0)
  --trainer.KEY VALUE   e.g. --trainer.max_epochs 5 --trainer.precision bf16-mixed --trainer.devices 2
  --model.KEY VALUE     an argument of the recipe's model, e.g. --model.dropout 0.3
  --optimizer.KEY VALUE, --lr_scheduler.KEY VALUE
                        e.g. --optimizer.lr 0.0005 --lr_scheduler.warmup_steps 100
  --data.KEY VALUE      an argument of the recipe's data, e.g. --data.root /data/multi30k
  --log tensorboard     also log for TensorBoard (or wandb: Weights & Biases), into the folder of the run
  --print_config        print the complete configuration and stop
  --help-all            every setting of the trainer

Checkpoints (the best and the last), metrics.csv and learning_curves.png go to runs/<name of the recipe>/.

example:
  {example}
"""
TRAINING = {
    "fit": dict(
        what="Train the model of a recipe, with validation after each epoch.",
        ckpt="checkpoint to resume from; `last`: the latest of this recipe",
        example="zoo fit --config luong_dot.dates\n"
        "  zoo fit --config luong_dot.dates --ckpt_path last     # resume after an interruption",
    ),
    "validate": dict(
        what="Compute the validation metrics.",
        ckpt="checkpoint to evaluate; `best` or `last` of this recipe",
        example="zoo validate --config luong_dot.dates --ckpt_path best",
    ),
    "test": dict(
        what="Compute the test metrics, e.g. those on a card.",
        ckpt="checkpoint to evaluate; `best` or `last` of this recipe",
        example="zoo test --config luong_dot.dates --weights luong_dot.dates",
    ),
    "calibrate": dict(
        what="Measure on the validation data how far the answers of a weight can be trusted, and save that with it.",
        ckpt="not for this command: export the checkpoint first",
        example="zoo export luong_dot.dates my_weights\n"
        "  zoo calibrate --config recipes/luong_dot.dates.yaml --weights local-dir:my_weights",
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The arguments; by default those of the process.

    Returns:
        The exit code: 0, or 2 after a mistake of the user, which one line on standard error explains.
    """
    try:
        args, modules = split_imports(sys.argv[1:] if argv is None else argv)
        if args and args[0] in TRAINING:
            find_local_modules()
            with imported(modules):
                _train(args)
        else:
            options = _parsed(args)
            if argv is None and options.run is _predict:  # given arguments, the caller may train later
                predict_only()
            # a server handles signals itself
            with imported(modules), nullcontext() if options.run is _serve else cleaning_up():
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
    parser = _parser()
    options, rest = parser.parse_known_args(args)
    if rest and (not hasattr(options, "text") or any(word.startswith("-") and word != "-" for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}{_nearest_option(parser, args[0], rest)}")
    if rest:
        options.text = [*options.text, *rest]
    return options


def _nearest_option(parser: argparse.ArgumentParser, verb: str, rest: list[str]) -> str:
    """The option that the first unknown one may have meant, as the end of a message."""
    verbs = next(action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    unknown = next((word.partition("=")[0] for word in rest if word.startswith("--")), "")
    nearest = get_close_matches(unknown, verbs[verb]._option_string_actions, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


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
        # taken out before the arguments are parsed (zoo/utils/modules.py)
        command.add_argument("--import", metavar="MODULE", help="first import a module with classes of your own")
        return command

    command = add("list", _list, "list the pretrained models", "zoo list 'luong*' --task translation")
    command.add_argument("pattern", nargs="?", default="*", help="shell pattern of the names (default: all)")
    command.add_argument("--task", help="only this task, e.g. translation")
    command.add_argument("--language", metavar="CODE", help="only models of this language, e.g. de")
    command.add_argument("--license", help="only weights with this licence, e.g. apache-2.0")
    command.add_argument("--markdown", action="store_true", help="print a Markdown table, like the one in the README")

    command = add(
        "info", _info, "print the card of a model", "zoo info luong_dot.dates\n  zoo info local-dir:my_weights"
    )
    command.add_argument("name", help="a name of `zoo list`, local-dir:FOLDER or hf-hub:...@REVISION")

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
        help="texts (for a classifier also files, or - for all of standard input; for a model of pairs two texts per pair), or image files "
        "and folders of them; if none is given, lines are read from standard input",
    )
    command.add_argument("--json", action="store_true", help="one JSON object per line, with the attention")
    command.add_argument(
        "--plot", metavar="FILE", help="plot the attention (FILE-2 and so on for further texts or images)"
    )
    command.add_argument(
        "--html", metavar="FILE", help="write the answers and their attention as one web page, at the end"
    )
    command.add_argument(
        "--document",
        metavar="FILE",
        help="readers: file of the document (or its text, or - for standard input); each query has XXXXX in place of the missing word; "
        "queries may also be lines of standard input",
    )
    command.add_argument(
        "--candidates", metavar="W|W|...", help="readers: candidate answers (default: all words of the document)"
    )
    command.add_argument(
        "--beam-size",
        type=int,
        metavar="K",
        help="translation, completion and captions: beam size; 1 is greedy search (default: the model's setting)",
    )
    command.add_argument(
        "--n-best",
        type=int,
        metavar="N",
        help="translation, completion and captions: print the N best outputs with their scores",
    )
    command.add_argument(
        "--no-split-sentences",
        dest="split_sentences",
        action="store_false",
        help="translation: read a text as one sentence (default: translate its sentences one by one)",
    )
    command.add_argument("--device", choices=("cpu", "cuda", "mps"), default="cpu", help="(default: %(default)s)")
    command.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        default="fp32",
        help="bf16 is faster on most GPUs; scores change in the third digit (default: %(default)s)",
    )

    command = add(
        "serve",
        _serve,
        "serve a pretrained model over HTTP, with batching of requests (needs the extra `serve`)",
        "zoo serve luong_general.multi30k_en_de --port 8000\n"
        "  curl -H 'Content-Type: application/json' -d '{\"text\": \"A dog runs.\"}' http://127.0.0.1:8000/predict\n"
        "  curl http://127.0.0.1:8000/info                   # the request fields of this model, and the limits",
    )
    command.add_argument("name", help="a name of `zoo list`, local-dir:FOLDER or hf-hub:...@REVISION")
    command.add_argument("--port", type=int, default=8000, help="(default: %(default)s)")
    command.add_argument(
        "--host",
        choices=("127.0.0.1", "0.0.0.0", "::"),
        default="127.0.0.1",
        help="address to listen on; 0.0.0.0 and :: accept other machines (default: 127.0.0.1, only this machine). There is no encryption; "
        "if ZOO_API_KEY is set, requests need that key in the header X-API-Key",
    )
    command.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="host name under which browsers and proxies reach this server, or whose pages may call it; * allows any (default: localhost and "
        "IP addresses, no pages of other hosts); may be repeated",
    )
    command.add_argument(
        "--max-batch",
        type=int,
        default=16,
        metavar="N",
        help="largest batch of texts, images or questions (default: %(default)s)",
    )
    command.add_argument(
        "--batch-wait-ms",
        type=float,
        default=5.0,
        metavar="MS",
        help="milliseconds that a request waits for others to form a batch (default: %(default)s)",
    )
    command.add_argument(
        "--max-items",
        type=int,
        default=32,
        metavar="N",
        help="most texts, images or questions in one request (default: %(default)s)",
    )
    command.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="most tokens in one text (default: 256 for translation, 5,000 for classification, 1,000 for completion, 2,000 for the document "
        "of a question)",
    )
    command.add_argument(
        "--max-work",
        type=int,
        default=20_000,
        metavar="N",
        help="most tokens times beam size over all texts of one request; an eighth of it for one text (default: %(default)s)",
    )
    command.add_argument(
        "--max-bytes", type=int, metavar="N", help="most bytes in one request (default: 1 MiB, 16 MiB for images)"
    )
    command.add_argument(
        "--workers", type=int, default=1, metavar="N", help="copies of the model on each device (default: %(default)s)"
    )
    command.add_argument("--devices", default="cpu", help="cpu, auto or a number of GPUs (default: %(default)s)")
    command.add_argument(
        "--timeout", type=float, default=30.0, metavar="S", help="most seconds for one request (default: %(default)s)"
    )

    command = add(
        "align",
        _align,
        "align the words of given translations, or compute the alignment error rate",
        "zoo align luong_general.tatoeba_de_en de.txt en.txt > links.txt\n"
        "  zoo align luong_general.tatoeba_de_en de.txt en.txt --gold gold.talp",
    )
    command.add_argument("name", help="a translator: a name of `zoo list`, local-dir:FOLDER or hf-hub:...@REVISION")
    command.add_argument(
        "source", help="file of source sentences, one per line, words separated by spaces; also .gz and .xz"
    )
    command.add_argument(
        "target", nargs="?", help="file of their translations (default: SOURCE has both, separated by a tab)"
    )
    command.add_argument(
        "--gold",
        metavar="FILE",
        help="print the alignment error rate; FILE has one line per pair, i-j for sure and ipj for possible links, counted from 1",
    )
    command.add_argument("--json", action="store_true", help="one JSON object per line, with the attention")
    command.add_argument("--plot", metavar="FILE", help="plot the attention of the first pair that is not empty")
    command.add_argument("--html", metavar="FILE", help="write the attention of all pairs as one web page")

    command = add(
        "recipes",
        _recipes,
        "list the recipes for training, or print one",
        "zoo recipes 'luong*'\n"
        "  zoo recipes han.imdb > mine.yaml                   # a copy to change\n"
        "  zoo recipes 'comparison/*'                         # those of zoo compare",
    )
    command.add_argument("name", nargs="?", help="print this recipe; with a shell pattern, list those that match")

    for name, texts in TRAINING.items():  # only for the list of commands: main() sends these to LightningCLI
        commands.add_parser(name, help=texts["what"][0].lower() + texts["what"][1:-1])

    command = add(
        "compare",
        _compare,
        "train all attention mechanisms on Multi30k with the same budget, and write a table and a plot",
        "zoo compare --out runs/comparison --data.root DATA\n"
        "  zoo compare --out runs/comparison --seeds 1 2 3 --jobs 4      # resumes where it stopped\n"
        "  zoo compare --out runs/comparison --report                    # only the table and the plot",
    )
    command.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="folder of runs and results; finished runs are not repeated",
    )
    command.add_argument(
        "--data.root",
        dest="root",
        metavar="DATA",
        help="folder of the data (default: ZOO_DATA, else downloaded)",
    )
    command.add_argument("--only", nargs="+", metavar="NAME", help="mechanisms to train, by recipe name (default: all)")
    command.add_argument("--seeds", nargs="+", type=int, default=[1], metavar="N", help="one run per seed (default: 1)")
    command.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help="the budget; the learning-rate schedule scales with it (default: base.yaml's)",
    )
    command.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="parallel runs, distributed over the GPUs (default: %(default)s)",
    )
    command.add_argument(
        "--threads", type=int, metavar="N", help="CPU threads per run (default: all processors, divided among the runs)"
    )
    command.add_argument("--device", choices=("cpu", "cuda"), help="(default: cuda where there is a GPU)")
    command.add_argument(
        "--recipes", metavar="FOLDER", help="folder of other recipes: base.yaml and one file per mechanism"
    )
    command.add_argument(
        "--report", action="store_true", help="train nothing; write the table and plot of the existing results"
    )
    command.add_argument(
        "--page", metavar="FOLDER", help="folder for README.md and its plot (default: the results folder)"
    )

    command = add(
        "export",
        _export,
        "export a checkpoint, or the average of several, as a folder of weights (fp16), or a model as ONNX graphs",
        "zoo export runs/luong_dot.dates/checkpoints/best.ckpt my_weights\n"
        '  zoo predict local-dir:my_weights "3 May 1995"\n'
        "  zoo export one/checkpoints/best.ckpt two/checkpoints/best.ckpt mean_of_both\n"
        "  zoo export luong_general.multi30k_en_de graphs --format onnx",
    )
    command.add_argument(
        "model",
        nargs="+",
        help="a checkpoint of `zoo fit`, a name of `zoo list`, local-dir:FOLDER or hf-hub:...@REVISION; of several "
        "that started from the same model, the average is exported",
    )
    command.add_argument("folder", help="new folder; unchanged weights of this package in it are replaced")
    command.add_argument(
        "--format",
        choices=("bundle", "onnx"),
        default="bundle",
        help="onnx needs the extra `onnx` (default: %(default)s)",
    )

    command = add(
        "publish",
        _publish,
        "upload weights and their card to the Hugging Face Hub, in one commit",
        "zoo publish my_weights my-name/my-model --dry-run\n"
        "  zoo publish my_weights my-name/my-model --private\n"
        "  zoo publish --all my-name                          # every weight of `zoo list`; resumes where it stopped",
    )
    command.add_argument("source", nargs="?", help="a folder of weights (or local-dir:FOLDER), or a name of `zoo list`")
    command.add_argument(
        "repo", nargs="?", metavar="ORG/REPO", help="repository on the Hub; created if it does not exist"
    )
    command.add_argument(
        "--all", metavar="ORG", help="publish every weight of `zoo list` as ORG/NAME instead, and write their pins"
    )
    command.add_argument(
        "--pins",
        metavar="FILE",
        help="with --all: file of the commits, from which zoo.load fetches (default: zoo/pins.json of this package)",
    )
    command.add_argument("--private", action="store_true", help="create it as a private repository")
    command.add_argument(
        "--dry-run", action="store_true", help="check everything and show what would be uploaded, without network"
    )
    command.add_argument(
        "--replace-card", action="store_true", help="replace the README.md on the Hub even if a person wrote it"
    )

    command = add(
        "download",
        _download,
        "fetch and verify pretrained weights ahead of time",
        "zoo download han.reuters bahdanau.multi30k_en_de\n  zoo download all",
    )
    command.add_argument("name", nargs="+", help="names of `zoo list`, hf-hub:ORG/REPO@REVISION, or all")

    command = add(
        "cache",
        _cache,
        "show the weights that were fetched from the Hub, or remove them",
        "zoo cache\n  zoo cache clear                                    # removes all weights of this package, nothing else\n"
        "  zoo cache clear han.reuters",
    )
    command.add_argument("action", nargs="?", choices=("clear",), help="remove the weights")
    command.add_argument("name", nargs="*", help="only these, as `zoo cache` names them (default: all)")

    command = add(
        "completion",
        _completion,
        "print a script with which the shell completes commands, options and names",
        'eval "$(zoo completion bash)"                      # in ~/.bashrc; zsh likewise\n'
        "  zoo completion fish > ~/.config/fish/completions/zoo.fish",
    )
    command.add_argument("shell", choices=("bash", "zsh", "fish"))
    return parser


def read_card(name: str) -> tuple[dict[str, Any], str]:
    """The YAML front matter and the text of a model's card."""
    path = CARDS / f"{name}.md"
    return split_card(path.read_text(encoding="utf-8"), path)


def _list(options: argparse.Namespace) -> None:
    names = registry.list_models(options.pattern)
    if not names and options.pattern != "*":
        raise ValueError(f"no model matches '{options.pattern}'; `zoo list` shows all")
    cards = _filtered({name: read_card(name)[0] for name in names}, options)
    rows, pins = [("NAME", "TASK", "PARAMETERS", "SIZE", "SCORE")], registry.all_pins()
    for name, card in cards.items():
        folder = registry.BUNDLED / name
        size = sum(file.stat().st_size for file in folder.iterdir()) if folder.is_dir() else None
        main_score = card["scores"][0]
        rows.append(
            (
                name,
                card["task"],
                _in_millions(card["parameters"]),
                f"{size / 1e6:.1f} MB" if size is not None else "on the Hub" if name in pins else "not here",
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


def _filtered(cards: dict[str, dict[str, Any]], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The cards that have what --task, --language and --license ask for."""
    every = cards
    for field in ("task", "language", "license"):
        if (wanted := getattr(options, field)) is None:
            continue
        known = {value for card in cards.values() for value in _values(card, field)}
        if wanted not in known:
            allowed = f"{', '.join(sorted(known))}{' for the models selected so far' * (len(cards) < len(every))}"
            raise ValueError(f"--{field} must be one of {allowed}; got {wanted!r}")
        cards = {name: card for name, card in cards.items() if wanted in _values(card, field)}
    return cards


def _values(card: dict[str, Any], field: str) -> list[str]:
    """What a card says in a field: one value, or several."""
    found = card.get(field, [])
    return found if isinstance(found, list) else [found]


def _in_millions(n: int) -> str:
    return f"{n / 1e6:.1f} M" if n >= 1e6 else f"{n / 1e3:.0f} k"


def _info(options: argparse.Namespace) -> None:
    if options.name.startswith(("local-dir:", "hf-hub:")):
        print(_card_of(registry.open_bundle(options.name), options.name).rstrip())
        return
    registry.entry(options.name)  # an unknown name raises with the nearest names
    print((CARDS / f"{options.name}.md").read_text(encoding="utf-8").rstrip())


def _card_of(bundle: Bundle, source: str) -> str:
    """The README.md in a folder of weights, or what the weights say of themselves."""
    if (bundle.folder / README).exists():
        return read_text(bundle.folder, README)
    model = registry.model_class(bundle.class_path).from_pretrained(bundle)
    return generated_card(model, f'model = zoo.load("{source}")', bundle.folder.name)


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

        target_folder(options.folder, replaceable_graphs)  # fails before any work
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
    replaced = _class_in(options.folder)
    folder = model.save_pretrained(options.folder, half=True, golden=True)
    if replaced not in (None, Bundle(folder).class_path):
        print(f"zoo: {options.folder} held a {replaced}, which was replaced", file=sys.stderr)
    for name in sorted(os.listdir(folder)):
        print(f"{name:24}{(folder / name).stat().st_size:>12,} bytes")
    print(f"sha256 of config.json, which lists those of the others: {Bundle(folder).config_sha256}")


def _class_in(folder: str) -> str | None:
    """The class of the weights in a folder; None if it has none."""
    return local_dir(folder).class_path if (Path(folder) / "config.json").is_file() else None


def _export_onnx(model: Any, folder: str, source: str) -> None:
    from zoo.onnx_export import export_onnx

    written = export_onnx(model, folder, source)
    print("\n".join(f"{file.name:20}{file.stat().st_size / 1e6:7.2f} MB" for file in sorted(written.iterdir())))


def _is_checkpoint(source: str) -> bool:
    return source.endswith(".ckpt") or (Path(source).exists() and not Path(source).is_dir())


def package(source: str, repo_id: str) -> Package:
    """What `zoo publish` would upload, for a name of `zoo list` or a folder (local-dir:FOLDER or FOLDER)."""
    check_repo_id(repo_id)
    if source in registry.TABLE:
        name, card, bundle = source, CARDS / f"{source}.md", registry.open_bundle(source, golden=True)
    elif source.startswith("local-dir:") or "/" in source or Path(source).is_dir():
        name, card, bundle = None, None, local_dir(source.removeprefix("local-dir:"))
    else:
        raise registry.unknown(source)
    return prepare(bundle, registry.model_class(bundle.class_path), repo_id, name, card)


def _publish(options: argparse.Namespace) -> None:
    given = [word for word in (options.source, options.repo) if word is not None]
    if len(given) != (0 if options.all else 2):
        raise ValueError("zoo publish needs either SOURCE and ORG/REPO, or --all ORG")
    if options.pins and not options.all:
        raise ValueError("--pins is for --all")
    if options.all:
        from zoo.commands.publish import run_all

        run_all(options, package)
        return
    found = package(options.source, options.repo)
    if options.dry_run:
        print(f"{found.table()}\n\nnothing was uploaded (--dry-run)")
    else:
        print(publish(found, private=options.private, replace_card=options.replace_card))


def _download(options: argparse.Namespace) -> None:
    from zoo.commands.download import run

    run(options)


def _cache(options: argparse.Namespace) -> None:
    from zoo.commands.cache import run

    run(options)


def _recipes(options: argparse.Namespace) -> None:
    from zoo.commands.recipes import run

    run(options)


def _completion(options: argparse.Namespace) -> None:
    from zoo.commands.completion import run

    told = re.findall(r"(?<!\S)--[\w.]+(?= )", TRAINING_HELP)  # of those with a KEY what is before it
    training = dict.fromkeys(TRAINING, list(dict.fromkeys(option.removesuffix("KEY") for option in told)))
    run(options.shell, _parser(), training)


def _train(args: list[str]) -> None:
    verb = args[0]
    if {"-h", "--help"} & set(args):
        print(TRAINING_HELP.format(verb=verb, **TRAINING[verb]))
        return
    given = {arg.partition("=")[0] for arg in args}
    if not given & {"--config", "--help-all"} and not given >= {"--model", "--data"}:
        example = TRAINING[verb]["example"].partition("\n")[0]
        raise ValueError(f"zoo {verb} needs --config RECIPE, e.g. {example}")
    for option, value in zip(args, [*args[1:], ""]):
        if option.startswith("--config"):
            file = option.partition("=")[2] or value
            if "://" in file:
                raise ValueError(
                    f"--config {file}: a recipe is code and is read from this machine only; download it and read it "
                    "first"
                )
    from zoo.commands.recipes import located

    found = located(["--help" if arg == "--help-all" else arg for arg in args])
    if verb == "calibrate":
        from zoo.training.calibration import calibrate as run
    else:
        from zoo.training.lightning_cli import run

    keep_freed_memory()
    run(found, args)


if __name__ == "__main__":
    sys.exit(main())
