"""What attention computes on the way to its weights: an export gives it out too, so that a page can show it.

Shapes: B batch, K hypotheses, S length.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from zoo.layers.attention import GlobalAttention, LocalPredictiveAttention
from zoo.models.key_value_predict_lm import WindowAttention
from zoo.models.show_attend_tell import AttendingLSTM
from zoo.models.transformer import DecoderLayer
from zoo.onnx_export.graphs import Tensors

WATCHED = SCORES, HEAD_SCORES, POSITION = "scores", "head_scores", "aligned_position"


@contextmanager
def watching(model: nn.Module) -> Iterator[Tensors]:
    """Fills, within the block, what the attention of a decoder step or of a language model computes before its weights.

    Yields:
        By name, as far as the model has it: SCORES (B, K, S), of a language model (T, B, L), before the softmax or
        sparsemax and its mask; HEAD_SCORES (B, K, layers * heads, S) of a Transformer, the heads of the first decoder
        layer first; POSITION (B, K), the p_t of local-p.
    """
    found: Tensors = {}
    heads: list[Tensor] = []  # (B, heads, K, S) of each layer

    def of_layer(scores: Tensor) -> None:
        heads.append(scores)
        found[HEAD_SCORES] = torch.cat(heads, dim=1).transpose(1, 2)

    with ExitStack() as watched:
        for module in model.modules():
            if isinstance(module, GlobalAttention):
                hook = module.score.register_forward_hook(lambda _, given, scores: found.update({SCORES: scores}))
                watched.callback(hook.remove)
            if isinstance(module, LocalPredictiveAttention):
                watched.enter_context(_heard(module, "aligned_position", lambda p: found.update({POSITION: p})))
            if isinstance(module, AttendingLSTM | WindowAttention):
                watched.enter_context(_heard(module, "scores", lambda scores: found.update({SCORES: scores})))
            if isinstance(module, DecoderLayer):
                watched.enter_context(_heard(module.cross_attention, "scores", of_layer))
        yield found


@contextmanager
def _heard(module: nn.Module, method: str, tell: Callable[[Tensor], None]) -> Iterator[None]:
    """Tells what a method of a module returns, within the block."""
    own = getattr(module, method)

    def telling(*given: Any) -> Tensor:
        found = own(*given)
        tell(found)
        return found

    setattr(module, method, telling)
    try:
        yield
    finally:
        delattr(module, method)
