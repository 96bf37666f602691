"""Key-value attention is additive attention with some weights at zero (EQUATIONS: what the abstract of Mino et al. says)."""

import pytest
import torch

from zoo.models.bahdanau import BahdanauNMT
from zoo.models.key_value_nmt import KeyValueNMT


def spread(small, columns, width):
    """Columns of a matrix at their places among `width`, the others zero."""
    out = small.new_zeros(len(small), width)
    out[:, columns] = small
    return out


@pytest.mark.numeric
@pytest.mark.parametrize("key_size", [2, 8, 12])
@pytest.mark.parametrize("decoder", ["gru", "conditional_gru"])
@torch.no_grad()
def test_equals_additive_attention_that_ignores_half_of_each_annotation(decoder, key_size):
    torch.manual_seed(0)
    model = KeyValueNMT(**KeyValueNMT.tiny, key_size=key_size, decoder=decoder).double().eval()
    full = BahdanauNMT(**BahdanauNMT.tiny, decoder=decoder).double().eval()
    size, embedding, half = 8, 6, key_size // 2  # H, E, keys of a direction
    keys = [*range(half), *range(size, size + half)]
    values = [*range(half, size), *range(size + half, 2 * size)]
    first = {"gru": ("initial", [v - size for v in values if v >= size], size), "conditional_gru": ("initial", values, 2 * size)}
    before = {"gru": embedding, "conditional_gru": 0}[decoder]  # columns of known inputs beside the context
    cell = {"gru": "gru", "conditional_gru": "gru_context"}[decoder]
    read = size + embedding
    places = {
        "attention.score.w_memory.weight": (keys, 2 * size),
        f"decoder.{cell}.weight_input": ([*range(before), *(before + v for v in values)], before + 2 * size),
        "decoder.readout.weight": ([*range(read), *(read + v for v in values)], read + 2 * size),
        f"decoder.{first[decoder][0]}.weight": first[decoder][1:],
    }
    state = {name: spread(t, *places[name]) if name in places else t for name, t in model.state_dict().items()}
    full.load_state_dict(state)
    batch = model.example_batch(6)
    for a, b in zip(model(*batch[:2], batch.tgt[:, :-1]), full(*batch[:2], batch.tgt[:, :-1]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    found, want = (m._search(batch.src, batch.src_lengths, 3).scores for m in (model, full))
    torch.testing.assert_close(found, want)  # the search itself scores in float32


@pytest.mark.parametrize(
    "key_size, range", [(0, "at least 1"), (3, r"even and between 0 and 2 \* hidden_size \(16\)"), (16, "even and between 0 and 2")]
)
def test_key_size_outside_its_range(key_size, range):
    with pytest.raises(ValueError, match=rf"key_size must be {range}.*; got {key_size}"):
        KeyValueNMT(**KeyValueNMT.tiny, key_size=key_size)
