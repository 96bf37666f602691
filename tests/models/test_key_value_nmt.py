"""Key-value attention is additive attention with some weights at zero (EQUATIONS: what the abstract of Mino et al.
says).
"""

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
    first = {
        "gru": ("initial", [v - size for v in values if v >= size], size),
        "conditional_gru": ("initial", values, 2 * size),
    }
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


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("decoder", ["gru", "conditional_gru"])
@torch.no_grad()
def test_equals_a_loop_over_keys_and_values(decoder, linear):
    torch.manual_seed(0)
    model = KeyValueNMT(**KeyValueNMT.tiny, key_size=6, decoder=decoder, linear=linear).eval().double()
    batch = model.example_batch(5)
    memory, (s,) = model.encode(batch.src, batch.src_lengths)
    a, size = model.attention.score, 8
    for n, length in enumerate(batch.src_lengths.tolist()):
        words = model.embeddings.src(batch.src[n : n + 1, :length])
        annotations, _ = model.encoder(words, batch.src_lengths[n : n + 1])
        keys, values = [], []
        for h in annotations[0]:
            if linear:
                h = torch.stack([sum(w * x for w, x in zip(row, h)) for row in model.linear.weight])  # W_e [fwd; bwd]
                keys.append(h[:6])
                values.append(h[6:])
            else:
                keys.append(torch.cat([h[:3], h[size : size + 3]]))
                values.append(torch.cat([h[3:size], h[size + 3 :]]))
        scores = torch.stack([a.v @ torch.tanh(a.w_query.weight @ s[n] + a.w_memory.weight @ k) for k in keys])
        alpha = scores.softmax(0)
        context, weights = model.attention(s.unsqueeze(1), memory)
        torch.testing.assert_close(weights[n, 0, :length], alpha)
        torch.testing.assert_close(context[n, 0], sum(w * v for w, v in zip(alpha, values)))


@pytest.mark.parametrize("decoder", ["gru", "conditional_gru"])
@torch.no_grad()
def test_partly_zero_is_the_conventional_model_but_for_where_it_begins(decoder):
    model = KeyValueNMT(**KeyValueNMT.tiny, split="partly_zero", decoder=decoder).eval()
    full = BahdanauNMT(**BahdanauNMT.tiny, decoder=decoder).eval()
    full.load_state_dict(model.state_dict())
    batch = model.example_batch(4)
    for a, b in zip(model(*batch[:2], batch.tgt[:, :-1]), full(*batch[:2], batch.tgt[:, :-1]), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("linear", [False, True])
def test_partly_zero_scores_begin_as_those_of_the_keys_and_learn_to_see_the_values(linear):
    torch.manual_seed(0)
    model = KeyValueNMT(**KeyValueNMT.tiny, key_size=6, split="partly_zero", linear=linear).eval()
    other = KeyValueNMT(**KeyValueNMT.tiny, key_size=6, linear=linear)
    weight = model.attention.score.w_memory.weight
    keys = [*range(6)] if linear else [0, 1, 2, 8, 9, 10]
    values = [n for n in range(16) if n not in keys]
    assert (weight[:, values] == 0).all() and (weight[:, keys] != 0).all()
    other.attention.score.v.data = model.attention.score.v.data
    other.attention.score.w_query.weight.data = model.attention.score.w_query.weight.data
    other.attention.score.w_memory.weight.data = weight.data[:, keys]
    memory, query, mask = torch.randn(2, 5, 16), torch.randn(2, 3, 8), torch.ones(2, 5, dtype=torch.bool)
    context, weights = model.attention(query, model.attention.project(memory, mask))
    k, v = other.split(memory)
    other_context, other_weights = other.attention(query, other.attention.project(k, mask)._replace(values=v))
    torch.testing.assert_close(weights, other_weights)
    torch.testing.assert_close(context[..., values], other_context)  # and it sees the keys besides
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.loss(model.example_batch(4))[0].backward()
    optimizer.step()
    assert (weight[:, values] != 0).all()


@pytest.mark.parametrize(
    "key_size, range",
    [(0, "at least 1"), (3, r"even and between 0 and 2 \* hidden_size \(16\)"), (16, "even and between 0 and 2")],
)
def test_key_size_outside_its_range(key_size, range):
    with pytest.raises(ValueError, match=rf"key_size must be {range}.*; got {key_size}"):
        KeyValueNMT(**KeyValueNMT.tiny, key_size=key_size)
