"""Test BLEU of translators in fp32 and in bf16, and their speed.

    python benchmarks/precision.py --root DATA [--threads 1] [NAME ...]

The test sets of each weight's recipe, translated by `translate` with the settings of the card, as `zoo test
--precision` does. "equal" counts sentences that have the same translation in both. Speed is in sentences per second of
processor time, which --threads 1 makes the time on one core.
"""

import argparse
import os
import time

import measuring
import scoring

import zoo
from zoo.tasks.precision import PRECISIONS

NAMES = "luong_general.multi30k_en_de", "transformer_tiny.multi30k_en_de"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(NAMES)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--root", help="folder of the data (default: ZOO_DATA)")
    options = measuring.parse(parser)
    if options.root:
        os.environ["ZOO_DATA"] = options.root
    print(f"{'':34}{'test set':>20}{'fp32':>8}{'bf16':>8}{'change':>8}{'equal':>14}{'fp32/s':>9}{'bf16/s':>9}")
    for name in options.names or NAMES:
        model, data = zoo.load(name).to(options.device), scoring.data_of(name)
        for split, examples in scoring.examples_of(data, model).items():
            given, bleu, texts, speed = list(examples), {}, {}, {}
            for model.precision in PRECISIONS:
                start = time.process_time()
                found, wanted = scoring.answers(model, iter(given))
                speed[model.precision] = len(given) / (time.process_time() - start)
                texts[model.precision] = found
                bleu[model.precision] = scoring.scores(model, data, found, wanted)["bleu"]
            equal = sum(a == b for a, b in zip(*texts.values(), strict=True))
            print(
                f"{name:34}{split:>20}{bleu['fp32']:8.2f}{bleu['bf16']:8.2f}{bleu['bf16'] - bleu['fp32']:+8.2f}"
                f"{f'{equal:,} of {len(given):,}':>14}{speed['fp32']:9.1f}{speed['bf16']:9.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
