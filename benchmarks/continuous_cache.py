"""Chooses the continuous cache of a language model: the perplexity of the validation text for each grid point.

    python benchmarks/continuous_cache.py --root DATA
    python benchmarks/continuous_cache.py --root DATA --sizes 1000 2000 --half-lives 140 170 200 250
    python benchmarks/continuous_cache.py --root DATA --keys readout projected output key value predict --sizes 700

The text is read once, as one stream; then each key, size, half-life and theta is a pass over what was kept. `readout`
is what the package uses; the parts of the outputs exist for key-value-predict models only.
"""

import argparse
import math
import time
from itertools import product

import torch
from torch import Tensor

import zoo
from zoo.data import PTB
from zoo.layers.continuous_cache import appended, empty_memory, interpolate, lookup_labels
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.text import EOS

STEPS_AT_ONCE = 256


def read(model: KeyValuePredictLM, ids: list[int], keys: list[str]) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """States of each kind (1, T, D), labels (1, T) and losses (1, T) of a text that begins after an EOS."""
    inputs, labels = torch.tensor([[EOS, *ids[:-1]]]), torch.tensor([ids])
    found: dict[str, list[Tensor]] = {key: [] for key in keys}
    outputs, losses, state = [], [], model.start(1)
    length = model.reader.length
    hook = model.reader.register_forward_hook(lambda layer, given, _: outputs.append(given[0][length:].transpose(0, 1)))
    for x, y in zip(inputs.split(STEPS_AT_ONCE, 1), labels.split(STEPS_AT_ONCE, 1), strict=True):
        readouts, _, state = model.read(x, state)
        parts = outputs.pop().split(model.config["hidden_size"], -1)
        kinds = {"readout": readouts, "output": torch.cat(parts, -1), "projected": model.words.bridge(readouts)}
        kinds |= dict(zip(("key", "value", "predict"), parts))
        for key in keys:
            found[key].append(kinds[key])
        losses.append(model.words.losses(readouts[0], y[0]))
    hook.remove()
    return {key: torch.cat(parts, 1) for key, parts in found.items()}, labels, torch.cat(losses).unsqueeze(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="key_value_predict.ptb")
    parser.add_argument("--root", required=True)
    parser.add_argument("--keys", nargs="+", default=["readout"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 200, 300, 500, 700, 1000, 2000])
    parser.add_argument("--half-lives", nargs="+", type=float, help="in words (without: a pair never fades)")
    parser.add_argument("--thetas", nargs="+", type=float, default=[0.25, 0.35, 0.4, 0.5, 0.6, 0.7])
    parser.add_argument("--shares", nargs="+", type=float, default=[0.06, 0.08, 0.1, 0.12, 0.15])
    parser.add_argument("--words", type=int, help="of the text, from its beginning")
    options = parser.parse_args()
    model = zoo.load(options.name)
    lines = PTB(root=options.root).lines("val")
    ids = [i for line in lines for i in [*model.vocabulary.encode(line), EOS]][: options.words]
    with torch.no_grad():
        states, labels, losses = read(model, ids, options.keys)
        print(f"{len(ids):,} words, without a cache {math.exp(losses.double().mean()):.2f}")
        print(
            "key      size half theta  " + "".join(f"{f'share {share:g}':>12}" for share in options.shares) + "   CPU s"
        )
        for key in options.keys:
            for size, half_life, theta in product(options.sizes, options.half_lives or [None], options.thetas):
                before = time.process_time()
                pairs = appended(empty_memory(states[key], size), states[key], labels)
                found = lookup_labels(states[key], pairs, theta, labels, half_life)
                means = [-interpolate(-losses, *found, share).double().mean() for share in options.shares]
                values = "".join(f"{math.exp(mean):12.2f}" for mean in means)
                half = f"{'-':>5}" if half_life is None else f"{half_life:5g}"
                print(f"{key:8}{size:5}{half}{theta:6g}  {values}{time.process_time() - before:8.1f}", flush=True)


if __name__ == "__main__":
    main()
