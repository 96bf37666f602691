"""Arguments of `zoo serve`."""

import argparse

from zoo.commands.arguments.common import add_precision, add_runtime

SUMMARY = "serve a pretrained model over HTTP, with batching of requests (needs the extra `serve`)"
EXAMPLE = (
    "zoo serve luong_general.multi30k_en_de --port 8000\n"
    "  curl -H 'Content-Type: application/json' -d '{\"text\": \"A dog runs.\"}' http://127.0.0.1:8000/predict\n"
    "  curl http://127.0.0.1:8000/info                   # the request fields of this model, and the limits"
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
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
        default=0.0,
        metavar="MS",
        help="milliseconds that a request waits for others although a worker is free (default: 0; what arrives while all workers compute "
        "is the next batch)",
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
    add_precision(command)
    add_runtime(command)
    command.add_argument(
        "--timeout", type=float, default=30.0, metavar="S", help="most seconds for one request (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.serve import run

    run(options)
