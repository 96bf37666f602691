"""More text for language models: drawn from the mean of several language models.

    python -m zoo.rebuilding.sampling JOB      JOB: a JSON file with the keyword arguments of `sample_text`

What they say about text that they have learnt by heart is more certain than what they say about other text. Text that
they have written themselves is new to all of them, and there is as much of it as wanted.

Shapes: B texts drawn side by side, V vocabulary.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from zoo.rebuilding.ensemble import Ensemble
from zoo.rebuilding.lines import run_job
from zoo.text import BOS, EOS, PAD
from zoo.utils.atomic import write_text

_TEXTS, _STEPS = 512, 500  # of a part; so many words are drawn between two savings
_BLOCK = 100  # words whose probabilities are summed first


def sample_text(target: str, models: Sequence[str], count: int, seed: int = 0) -> None:
    """Writes a text of about so many words. Parts that are done are kept until the whole is.

    Args:
        target: file to write, one line for each line drawn; none is empty.
        models: names of `zoo list`, or local-dir:FOLDER, of language models with one vocabulary.
        count: words, at least 1; the unfinished line at the end of each text is left out.
        seed: of the draws.

    Raises:
        ValueError: the models do not fit, or `count` is out of range.
    """
    if count < 1:
        raise ValueError(f"sample must be a number of words, at least 1; got {count}")
    ensemble, part = Ensemble(models), _TEXTS * _STEPS
    files = {start: Path(target).with_name(f"part{start}.txt") for start in range(0, count, part)}
    for start, file in files.items():
        if not file.is_file():
            number = min(_TEXTS, -(-(count - start) // _STEPS))
            texts = _draw(ensemble, number, torch.Generator().manual_seed(seed * 10_000 + start // part))
            write_text(file, "".join(_lines(ensemble, text) for text in texts.tolist()))
            print(f"{min(start + part, count):,} of {count:,} words are drawn", flush=True)
    write_text(Path(target), "".join(file.read_text(encoding="utf-8") for file in files.values()))
    for file in files.values():
        file.unlink()


def _draw(ensemble: Ensemble, texts: int, generator: torch.Generator) -> Tensor:
    """Ids of texts (B, steps), drawn word by word."""
    ensemble.start(texts)
    last, drawn = torch.full((texts, 1), EOS), []
    for _ in range(_STEPS):
        probabilities = ensemble.read(last)[:, 0]
        probabilities[:, [PAD, BOS]] = 0
        probabilities[:, EOS] *= last[:, 0] != EOS  # no empty lines
        last = pick(probabilities, torch.rand(texts, 1, generator=generator))
        drawn.append(last)
    return torch.cat(drawn, dim=1)


def pick(weights: Tensor, places: Tensor) -> Tensor:
    """The index (B, 1) at which the running sum of weights (B, V) passes a share (B, 1), 0 to 1, of their sum."""
    blocks = functional.pad(weights, (0, -weights.size(1) % _BLOCK)).unflatten(1, (-1, _BLOCK))
    of_blocks = blocks.sum(-1)
    sums = of_blocks.cumsum(-1)
    block = _passed(sums, places * sums[:, -1:])
    within = blocks[torch.arange(len(weights)), block[:, 0]].cumsum(-1)
    return block * _BLOCK + _passed(within, places * sums[:, -1:] - (sums - of_blocks).gather(1, block))


def _passed(sums: Tensor, places: Tensor) -> Tensor:
    """The first of the running sums (B, N) that is above a place (B, 1); rounding never leads behind the last rise."""
    below = torch.nextafter(sums[:, -1:], torch.zeros_like(sums[:, -1:]))
    return torch.searchsorted(sums, torch.minimum(places, below), right=True)


def _lines(ensemble: Ensemble, ids: list[int]) -> str:
    """The whole lines of a text, with line ends."""
    found, line = [], []
    for i in ids:
        if i == EOS:
            found.append(" ".join(ensemble.tokenizer.tokens(line)) + "\n")
            line = []
        else:
            line.append(i)
    return "".join(found)


def main(arguments: Sequence[str]) -> int:
    """Runs one job; the exit code is that of `run_job`."""
    return run_job(sample_text, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
