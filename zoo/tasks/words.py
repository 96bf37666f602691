"""The word embeddings and the output layer of a language model."""

import math

from torch import Tensor, nn

from zoo.layers.dropout import Dropout
from zoo.layers.losses import output_logits, output_loss, output_losses, sampled_output_loss, soft_output_loss
from zoo.layers.tied import TiedOutput
from zoo.tasks.vocabulary import extend_embedding, extend_output
from zoo.text import PAD


class Words(TiedOutput):
    """Word embeddings and output layer, as one matrix or two (Press and Wolf 2017).

    A tied matrix needs small entries as output layer and unit variance as input, so its rows are scaled by
    sqrt(embedding_size) when they are looked up (Vaswani et al. 2017, section 3.4).

    Args:
        vocab_size, embedding_size: V, E.
        readout_size: D, size of the readouts.
        tie_output: the output layer is the embedding matrix; readouts of another size are first projected to E.
        word_dropout: share of the vocabulary that is dropped from the inputs of a training batch, as whole words
            (Gal and Ghahramani 2016).
        sampled_words: words in the softmax of a training batch in addition to its targets (`sampled_output_loss`);
            all if not given.
        evaluation_temperature: divides the readouts in evaluation. Training may make a model overconfident; the
            value that is best on validation data corrects that (Guo et al. 2017, arXiv:1706.04599).
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        readout_size: int,
        tie_output: bool,
        word_dropout: float,
        sampled_words: int | None = None,
        evaluation_temperature: float = 1.0,
    ):
        super().__init__()
        if sampled_words is not None and sampled_words < 2:
            raise ValueError(f"sampled_words must be at least 2, or null for the whole vocabulary; got {sampled_words}")
        if not 0 < evaluation_temperature < math.inf:
            raise ValueError(f"evaluation_temperature must be above 0 and finite; got {evaluation_temperature}")
        self.scale, self.sampled_words, self.evaluation_temperature = (
            embedding_size**0.5,
            sampled_words,
            evaluation_temperature,
        )
        self.readout_size = readout_size
        self.table = nn.Embedding(vocab_size, embedding_size, padding_idx=PAD)
        nn.init.normal_(self.table.weight, std=1 / self.scale)
        self.table.weight.detach()[PAD] = 0
        fits = not tie_output or readout_size == embedding_size
        self.bridge = nn.Identity() if fits else nn.Linear(readout_size, embedding_size, bias=False)
        self.output = nn.Linear(embedding_size if tie_output else readout_size, vocab_size)
        if tie_output:
            self.output.weight = self.table.weight
        nn.init.zeros_(self.output.bias)
        self.word_dropout = Dropout(word_dropout)

    def extend(self, known: int, size: int) -> None:
        """Adds rows for the words known .. size-1, see zoo/tasks/vocabulary.py; tied matrices stay so."""
        extend_embedding(self.table, known, size)
        extend_output(self.output, known, size, tied=self.is_tied)

    def expect(self, counts: Tensor) -> None:
        """Initialises the output bias with the log frequencies of counts (at most V,); a count of 0 is taken as 1."""
        bias = self.output.bias.detach()
        bias.zero_()[: len(counts)] = counts.clamp(min=1).log()
        bias.sub_(bias.logsumexp(0))

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (...) -> (..., E)."""
        found = self.table(ids) * self.scale
        if self.training and self.word_dropout.p:
            found = found * self.word_dropout(found.new_ones(self.table.num_embeddings, 1))[ids]
        return found

    def logits(self, readouts: Tensor) -> Tensor:
        """Readouts (..., D) -> (..., V)."""
        return output_logits(self.output, self._bridged(readouts))

    def loss(self, readouts: Tensor, labels: Tensor) -> Tensor:
        """Summed cross-entropy of readouts (N, D) and labels (N,); an estimate in training if words are sampled."""
        if self.training and self.sampled_words:
            return sampled_output_loss(self.output, self._bridged(readouts), labels, self.sampled_words)
        return output_loss(self.output, self._bridged(readouts), labels)

    def soft_loss(self, readouts: Tensor, words: Tensor, probabilities: Tensor) -> Tensor:
        """Summed cross-entropy of readouts (N, D) with distributions of which K words are known, (N, K)."""
        return soft_output_loss(self.output, self._bridged(readouts), words, probabilities)

    def losses(self, readouts: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of each of readouts (N, D) with labels (N,) -> (N,), without a gradient."""
        return output_losses(self.output, self._bridged(readouts), labels)[1]

    def _bridged(self, readouts: Tensor) -> Tensor:
        bridged = self.bridge(readouts)
        return bridged if self.training or self.evaluation_temperature == 1 else bridged / self.evaluation_temperature
