"""Embeddings and output layer of a translator.

Shapes: E embedding, D readout, V target vocabulary.
"""

from torch import Tensor, nn

from zoo.layers.losses import output_logits, output_loss
from zoo.layers.tied import TiedOutput
from zoo.tasks.vocabulary import extend_embedding, extend_output
from zoo.text import PAD


class Embeddings(TiedOutput):
    """Source and target embeddings and the output layer, optionally shared or tied (Press and Wolf 2017).

    A tied matrix needs small entries as output layer and unit variance as input, so its rows are scaled by
    sqrt(embedding_size) when they are looked up (Vaswani et al. 2017, section 3.4).

    Args:
        src_vocab_size, tgt_vocab_size, embedding_size: sizes.
        shared_vocab: one matrix for both languages.
        tie_output: the output layer is the target embedding matrix; readouts are first projected to its size.
        readout_size: D, size of the readouts.
    """

    tied_to = "tgt_table"

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        embedding_size: int,
        shared_vocab: bool,
        tie_output: bool,
        readout_size: int,
    ):
        super().__init__()
        if shared_vocab and src_vocab_size != tgt_vocab_size:
            raise ValueError(
                f"shared_vocab needs equal vocabulary sizes; got src_vocab_size {src_vocab_size} and tgt_vocab_size "
                f"{tgt_vocab_size}"
            )
        self.scale = embedding_size**0.5
        self.tgt_table = nn.Embedding(tgt_vocab_size, embedding_size, padding_idx=PAD)
        if not shared_vocab:
            self.src_table = nn.Embedding(src_vocab_size, embedding_size, padding_idx=PAD)
        for table in {self.source: None, self.tgt_table: None}:
            nn.init.normal_(table.weight, std=1 / self.scale)
            table.weight.detach()[PAD] = 0
        self.bridge = nn.Linear(readout_size, embedding_size, bias=False) if tie_output else nn.Identity()
        self.output = nn.Linear(embedding_size if tie_output else readout_size, tgt_vocab_size)
        if tie_output:
            self.output.weight = self.tgt_table.weight
        nn.init.zeros_(self.output.bias)

    @property
    def source(self) -> nn.Embedding:
        """The source embeddings. A shared one is not a submodule: tools that replace modules must find it only once."""
        return self.src_table if "src_table" in self._modules else self.tgt_table

    def extend(self, known: tuple[int, int], sizes: tuple[int, int], pieces: tuple[list, list] = ([], [])) -> None:
        """Adds source and target rows for new words, see zoo/tasks/vocabulary.py; shared or tied matrices stay so.

        Args:
            known: numbers of source and target tokens that already have a row.
            sizes: numbers of both afterwards.
            pieces: for each new token of both, the known tokens it consists of, if any.
        """
        if self.source is not self.tgt_table:
            extend_embedding(self.source, known[0], sizes[0], pieces[0])
        extend_embedding(self.tgt_table, known[1], sizes[1], pieces[1])
        extend_output(self.output, known[1], sizes[1], tied=self.is_tied)

    def src(self, ids: Tensor) -> Tensor:
        """Source ids (...) -> (..., E)."""
        return self.source(ids) * self.scale

    def tgt(self, ids: Tensor) -> Tensor:
        """Target ids (...) -> (..., E)."""
        return self.tgt_table(ids) * self.scale

    def logits(self, readouts: Tensor) -> Tensor:
        """Readouts (..., D) -> (..., V)."""
        return output_logits(self.output, self.bridge(readouts))

    def loss(self, readouts: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
        """Summed cross-entropy of readouts (N, D) and labels (N,)."""
        return output_loss(self.output, self.bridge(readouts), labels, label_smoothing)
