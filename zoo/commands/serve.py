"""`zoo serve`: a model over HTTP."""

import argparse
from functools import partial
from typing import Any

from zoo import registry
from zoo.bundles.files import HF_HUB, LOCAL_DIR
from zoo.commands.graphs import export_first, open_graphs, uses_graphs
from zoo.utils.extras import require
from zoo.utils.whole import is_whole


def run(options: argparse.Namespace) -> None:
    """Serves until a signal."""
    require("serve", "`zoo serve`")
    from zoo.serving import run as serve
    from zoo.serving.worker import of_torch

    card = _card(options.name)
    if uses_graphs(options):
        if options.devices != "cpu" or options.precision != "fp32":
            raise ValueError(
                "exported graphs run on the CPU: leave out --devices and --precision; for speed there is --int8"
            )
        export_first(options.name, options.int8)
        serve(options, card, partial(open_graphs, options.int8))
        return
    if options.int8:
        raise ValueError("--int8 is for exported graphs: add --runtime onnx")
    serve(options, card, partial(of_torch, precision=options.precision))


def _card(name: str) -> dict[str, Any]:
    """The card of a name of `zoo list`, for `/info`; the runtime alone has no cards."""
    if name.startswith((LOCAL_DIR, HF_HUB)):
        return {}
    name = registry.entry(name).name
    if not is_whole():
        return {}
    from zoo.commands.cards import read_card

    return read_card(name)[0]
