"""Shapes and types that attention layers refuse: broadcasting would mix sentences."""

import re

import pytest
import torch

from zoo.layers.attention import ATTENTIONS, AttentionMemory, NoAttention, dot_product_attention, make_attention
from zoo.layers.masking import masked_mean, masked_softmax, masked_sparsemax
from zoo.layers.multi_head import MultiHeadAttention
from zoo.layers.scores import SCORES, additive_score
from zoo.models.attention_over_attention import attend_over_attention

B, T, S, H = 3, 3, 5, 4  # as many queries as sentences, where broadcasting works by chance
CASES = [(kind, name) for kind in ATTENTIONS for name in SCORES if name != "location" or kind == "global"]


def made(kind="global", name="general", **options):
    torch.manual_seed(0)
    attention = make_attention(kind, H, H, score=name, window=2, **options)
    return attention, torch.randn(B, T, H), torch.randn(B, S, H), torch.ones(B, S, dtype=torch.bool)


def refused(message, function, *arguments, **options):
    with pytest.raises(ValueError, match=re.escape(message)) as found:
        function(*arguments, **options)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("kind, name", CASES)
def test_queries(kind, name):
    attention, query, memory, mask = made(kind, name)
    seen = attention.project(memory, mask)
    for wrong in (query[:, 0], query[:1], query[None], query[..., :3]):
        refused(f"query must be (B, T, H), here (3, T, 4); got {tuple(wrong.shape)}", attention, wrong, seen)
    refused("position must be (T), here (3); got (3, 1)", attention, query, seen, torch.zeros(3, 1))


def test_no_attention_refuses_queries_too():
    attention, (_, query, memory, mask) = NoAttention(), made()
    refused(
        "query must be (B, T, H), here (3, T, H); got (3, 4)", attention, query[:, 0], attention.project(memory, mask)
    )


@pytest.mark.parametrize("kind, name", CASES)
def test_memories_and_masks(kind, name):
    attention, _, memory, mask = made(kind, name)
    for wrong in (memory[:, 0], memory[None], memory[..., :3]):
        refused(f"memory must be (B, S, M), here (B, S, 4); got {tuple(wrong.shape)}", attention.project, wrong, mask)
    for wrong in (mask[:1], mask[:, :1], mask[:, None], mask[0]):
        refused(f"mask must be (B, S), here (3, 5); got {tuple(wrong.shape)}", attention.project, memory, wrong)
    refused("mask must be bool, True where attention may go; got torch.int64", attention.project, memory, mask.long())


@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    attention, query, memory, _ = made(name=name)
    score = attention.score
    keys = score.project(memory)
    size = 4 if name not in ("location", "uniform") else "K"
    for wrong in (query[:, 0], query[:1]):
        shape = (*wrong.shape,)
        refused(f"query must be (B, T, K), here (3, T, {size}); got {shape}", score, wrong, keys)
    refused("keys must be (B, S, K); got (3, 4)", score, query, keys[:, 0])


def test_additive_scores():
    query, keys, v = torch.randn(B, T, H), torch.randn(B, S, H), torch.randn(H)
    refused("query must be (B, T, K), here (3, T, 4); got (3, 3, 1)", additive_score, query[..., :1], keys, v)
    refused("query must be (B, T, K), here (3, T, 4); got (3, 4)", additive_score, query[:, 0], keys, v)


@pytest.mark.parametrize("normalize", [masked_softmax, masked_sparsemax])
def test_masks_of_scores(normalize):
    scores, mask = torch.randn(B, T, S), torch.ones(B, S, dtype=torch.bool)
    wanted = "mask must have the shape of the scores, (3, 3, 5), or 1 in place of any dimension; got "
    for wrong in (mask, mask[0], mask[:2, None], mask[:, None, None]):
        refused(wanted + str(tuple(wrong.shape)), normalize, scores, wrong)
    refused(
        "mask must be bool, True where attention may go; got torch.float32", normalize, scores, mask[:, None].float()
    )
    whole = normalize(scores, mask[:, None].expand(B, T, S))
    for right in (mask[:, None], mask[:1, None], torch.tensor(True)):
        assert normalize(scores, right).equal(whole)


def test_masks_of_means_and_of_attention_over_attention():
    x, mask = torch.randn(B, S, H), torch.ones(B, S, dtype=torch.bool)
    refused("mask must be (B, S), here (3, 5); got (5,)", masked_mean, x, mask[0])
    refused("document_mask must be (B, D), here (3, 5); got (1, 5)", attend_over_attention, x, mask[:1], mask[:, :4])
    refused("query_mask must be bool", attend_over_attention, x, mask, mask[:, :4].int())


def test_multi_head_attention():
    attention = MultiHeadAttention(H, 2, key_size=3, output_projection=True, dropout=0.0)
    x, memory, mask = torch.randn(B, T, H), torch.randn(B, S, H), torch.ones(B, 1, 1, S, dtype=torch.bool)
    keys, values = attention.project(memory)
    for show in (False, True):
        attend = lambda *given, show=show, **more: attention(*given, show=show, **more)  # noqa: E731
        refused("x must be (B, N, D), here (3, N, 4); got (3, 4)", attend, x[:, 0], keys, values)
        refused("x must be (B, N, D), here (3, N, 4); got (1, 3, 4)", attend, x[:1], keys, values)
        refused("keys must be (B, H, M, d_k), here (3, 2, M, 3); got (3, 1, 5, 3)", attend, x, keys[:, :1], values)
        refused(
            "values must be (B, H, M, D / H), here (3, 2, 5, 2); got (3, 2, 1, 2)", attend, x, keys, values[:, :, :1]
        )
        refused("mask must have the shape of the scores, (3, 2, 3, 5)", attend, x, keys, values, mask[:, 0, 0])
        refused("mask must be bool", attend, x, keys, values, mask.float())
        refused("causal attention has its own mask", attend, x, keys, values, mask, causal=True)
    refused("mask must be bool", dot_product_attention, keys, keys, values, mask.float(), 0.0, False)
    shown, _ = attention(x, *attention.project(x), causal=True, show=True)
    torch.testing.assert_close(shown, attention(x, *attention.project(x), causal=True)[0])


ROWS = "given weights must be at least 0 everywhere and sum to at most 1 in each row, to 0 where it decides; got a row "


@pytest.mark.parametrize("kind", ATTENTIONS)
@pytest.mark.parametrize("renormalize", [False, True])
def test_given_weights(kind, renormalize):
    attention, query, memory, mask = made(kind, renormalize=renormalize)
    seen = attention.project(memory, mask)
    even = torch.full((B, T, S), 1 / S)

    def attend(given):
        return attention(query, seen, None, given)

    for shape in ((B, S), (1, S), (B, T, 1), (B, 2, S), (B, T, S + 1)):
        wanted = f"given weights must have the shape of the computed ones, (3, 3, 5); got {shape}"
        refused(wanted, attend, torch.zeros(shape))
    refused(ROWS + "with the sum 5 and the smallest 1", attend, torch.ones(B, T, S))
    negative = even.clone()
    negative[1, 2, :2] = torch.tensor([0.5, -0.1])
    refused(ROWS + "with the sum 1 and the smallest -0.1", attend, negative)
    refused(ROWS + "with the sum 1.05 and the smallest 0.21", attend, torch.full((B, T, S), 0.21))
    refused(ROWS + "with the sum nan and the smallest nan", attend, even / 0 * 0)
    for right in (even, even / 2, even[:1], even[:, :1], even.bfloat16()):
        assert attend(right)[1].equal(right.float().expand(B, T, S))
    assert attend(even * 0)[1].equal(attend(None)[1])


def test_given_weights_of_heads():
    attention = MultiHeadAttention(H, 2, key_size=2, output_projection=True, dropout=0.0)
    x, memory = torch.randn(B, T, H), torch.randn(B, S, H)
    keys, values = attention.project(memory)
    refused(ROWS + "with the sum 5", attention, x, keys, values, given=torch.ones(B, T, S))
    refused("given weights must have the shape", attention, x, keys, values, given=torch.zeros(B, S))


def test_memory_of_other_values_is_attended_to():
    """Keys and values of different sizes, as in key-value attention."""
    attention, query, memory, mask = made()
    seen: AttentionMemory = attention.project(memory, mask)._replace(values=torch.randn(B, S, 9))
    assert attention(query, seen)[0].shape == (B, T, 9)
