"""Attribution methods of captum (https://captum.ai) for classifiers, translators and captioners.

from captum.attr import IntegratedGradients, LayerIntegratedGradients
from zoo.bridges.captum import questions

for question in questions(model, "A dog runs in the snow."):  # of a classifier one, of a translator several
    scores, gap = IntegratedGradients(question.forward).attribute(
        question.inputs, question.baselines, question.target, return_convergence_delta=True
    )
    print(question.answer, list(zip(question.words, scores.sum(-1)[0].tolist())), gap.item())

    layer = LayerIntegratedGradients(question.forward_ids, question.layer)
    scores = layer.attribute(question.ids, question.ids_baseline, question.target)

The gap is that between the sum of the scores and what the probability of the answer gained; some translators need
more than captum's 50 steps to make it small: `n_steps=1000, internal_batch_size=50`.

forward is a function and no module, so it serves the methods that need gradients or changed inputs only: integrated
gradients, saliency, input x gradient, gradient SHAP, noise tunnel, occlusion, feature ablation, Shapley values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zoo.explanations.captioners import WordDecision
from zoo.explanations.classifiers import TextDecision
from zoo.explanations.measure import check_seed, decisions
from zoo.explanations.translators import TokenDecision
from zoo.tasks.base import ZooModule
from zoo.text import UNK


@dataclass(frozen=True)
class Question:
    """An answer of a model, as captum's methods take it.

    Attributes:
        forward: embeddings (or features of an image) (B, N, E) -> probabilities (B, C).
        inputs: (1, N, E) those of the input; of a translator with the end of the sentence.
        baselines: (1, N, E) zeros.
        target: the answer, an index of C.
        answer: the answer in words: a label, or a word of the translation or caption.
        words: N, what is scored; of a translator its tokens, of a captioner the regions of the image.
        ids: (1, N) the words; None for an image.
        ids_baseline: (1, N) as many unknown words; None for an image.
        layer: the embedding layer; None for an image.
    """

    forward: Callable[[Tensor], Tensor]
    inputs: Tensor
    baselines: Tensor
    target: int
    answer: str
    words: list[str]
    ids: Tensor | None = None
    ids_baseline: Tensor | None = None
    layer: nn.Embedding | None = None

    def forward_ids(self, ids: Tensor) -> Tensor:
        """Words (B, N) -> probabilities (B, C), for the methods that attribute to a layer.

        Raises:
            ValueError: the input is an image.
        """
        if self.layer is None:
            raise ValueError("an image has no words: use forward and inputs")
        return self.forward(self.layer(ids))


def questions(model: ZooModule, source: Any, seed: int = 0) -> list[Question]:
    """The answers of a model about an input: the label (the most probable one of several), or some words of the
    translation or caption, drawn at random.

    Args:
        model: a classifier, translator or captioner with attention, on the CPU.
        source: a text, a pair of texts, or an image.
        seed: draws the words of a translation or caption.

    Returns:
        The questions; none about a text with fewer than two words, or without a label.

    Raises:
        ValueError: there is no bridge for the task, the model has no attention, is on another device or in half
            precision, or the seed is negative or above 2**32 - 1.
        TypeError: the input is of another kind.
    """
    check_seed(seed)
    found = decisions(model, source, torch.Generator().manual_seed(seed))
    return [_question(decision) for decision in found]


def _question(decision: TextDecision | TokenDecision | WordDecision) -> Question:
    inputs = decision.embedded()
    parts = (decision.read, inputs, torch.zeros_like(inputs), decision.answer, decision.said, decision.words)
    if isinstance(decision, WordDecision):
        return Question(*parts)
    # a layer of its own, because a translator may read both languages with one
    layer = nn.Embedding.from_pretrained(decision.table.weight.detach())
    return Question(*parts, decision.ids, torch.full_like(decision.ids, UNK), layer)
