"""LSTMLanguageModel: the layers of LSTMs and the dropout that several language models have.

Dropout of words, inputs, outputs and recurrent weights as in Merity et al. 2018 (arXiv:1708.02182), the same at all
steps.

Shapes: B batch, T steps, E embedding. Inside, steps come first: (T, B, ...).
"""

from collections.abc import Sequence

from torch import Tensor

from zoo.layers.dropout import Dropout, LockedDropout
from zoo.layers.masking import lengths_to_mask
from zoo.layers.module_list import ModuleList
from zoo.layers.packed import pack, step_major, to_padded
from zoo.layers.recurrent import LSTMCell, run_layer
from zoo.tasks.language_modelling import LanguageModelModule, State


class LSTMLanguageModel(LanguageModelModule):
    """Base class of the language models whose words are read by LSTMs."""

    def add_layers(
        self,
        embedding_size: int,
        sizes: Sequence[int],
        input_dropout: float,
        inner_dropout: float,
        dropout: float,
        weight_dropout: float,
        locked_dropout: bool = True,
    ) -> None:
        """Adds the LSTMs, of these sizes from the bottom to the top, and the dropout."""
        self.cells = ModuleList(LSTMCell(size, out) for size, out in zip([embedding_size, *sizes], sizes))
        make = LockedDropout if locked_dropout else Dropout
        self.input_dropout, self.inner_dropout, self.dropout = make(input_dropout), make(inner_dropout), make(dropout)
        self.weight_dropout = Dropout(weight_dropout)

    def start_layers(self, batch_size: int) -> State:
        """h and c of each layer before the first word, (B, H) each."""
        new = self.cells[0].bias.detach().new_zeros
        return tuple(new(batch_size, cell.hidden_size) for cell in self.cells for _ in range(2))

    def run_layers(self, inputs: Tensor, layers: Sequence[Tensor], lengths: Tensor | None) -> tuple[Tensor, State]:
        """Reads words.

        Args:
            inputs: (B, T) ids.
            layers: h and c of each layer.
            lengths: (B,) number of real words in each row; all if not given.

        Returns:
            The outputs of the top layer (T, B, O), and h and c of each layer after the real words.
        """
        batch, steps = inputs.shape
        x, new = self.input_dropout(self.words(inputs.t())), []  # (T, B, E)
        mask = None if lengths is None else lengths_to_mask(lengths, steps)
        packing = step_major(steps, batch, inputs.device) if lengths is None else pack(lengths, 1)
        for n, cell in enumerate(self.cells):
            x = self.inner_dropout(x) if n else x
            weight = [self.weight_dropout(cell.weight_hidden)] if self.training and self.weight_dropout.p else None
            flat = x.flatten(0, 1) if mask is None else x.transpose(0, 1)[mask]
            flat, final = run_layer(
                [cell], flat, packing, start=tuple(layers[2 * n : 2 * n + 2]), hidden_weights=weight
            )
            x = flat.unflatten(0, (steps, batch)) if mask is None else to_padded(flat, mask).transpose(0, 1)
            new += final
        return x, tuple(new)


def check_limits(window: int, num_layers: int) -> None:
    """Refuses what would take all memory, as no weight's shape bounds it.

    Raises:
        ValueError: one is too large.
    """
    for name, value, most in (("window", window, 10_000), ("num_layers", num_layers, 1000)):
        if value > most:
            raise ValueError(f"{name} must be at most {most:,}; got {value:,}")
