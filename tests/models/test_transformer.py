"""The Transformer against its equations written as loops, and the pictures of its heads."""

import math

import matplotlib.image
import pytest
import torch
from model_cases import build

from zoo.layers.attention import dot_product_attention
from zoo.layers.positions import positions
from zoo.models.transformer import TransformerNMT
from zoo.text import EOS, Tokenizer

exactly = pytest.mark.usefixtures("float64")


def normalised(x, norm):
    mean, variance = x.mean(), x.var(unbiased=False)
    return (x - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias


def attend(attention, x, memory, allowed):
    """One position x (D,) over the rows of memory that are allowed, head by head -> output (D,), weights (H, M)."""
    size, heads = len(x), attention.num_heads
    key_size, value_size = len(attention.query.weight) // heads, size // heads
    keys, values = (memory @ part.T for part in attention.key_value.weight.split([heads * key_size, size]))
    query, found, shown = attention.query.weight @ x, [], []
    for h in range(heads):
        columns, of_value = slice(h * key_size, (h + 1) * key_size), slice(h * value_size, (h + 1) * value_size)
        scores = [
            math.exp(query[columns] @ key[columns] / math.sqrt(key_size)) if ok else 0.0
            for key, ok in zip(keys, allowed)
        ]
        weights = torch.tensor(scores) / sum(scores)
        shown.append(weights)
        found.append(sum(w * value[of_value] for w, value in zip(weights, values)))
    projected = isinstance(attention.output, torch.nn.Linear)
    return attention.output.weight @ torch.cat(found) if projected else torch.cat(found), torch.stack(shown)


def sublayer(residual, x, function):
    """x (N, D); `function` maps what it reads, all positions, to what is added."""
    norm = lambda rows: torch.stack([normalised(row, residual.norm) for row in rows])  # noqa: E731
    return x + function(norm(x)) if residual.first else norm(x + function(x))


def naive(model, src, tgt):
    """Logits (T, V) of one pair, and the weights of (encoder, decoder, cross), each (layers, H, ., .)."""
    size, maps = model.config["model_size"], ([], [], [])

    def embed(table, ids):
        place = [
            [(math.sin, math.cos)[i % 2](n / 10000 ** (2 * (i // 2) / size)) for i in range(size)]
            for n in range(len(ids))
        ]
        return table.weight[ids] * math.sqrt(size) + torch.tensor(place)

    def reader(attention, shown, memory=None, causal=False):
        def read(x):
            rows = x if memory is None else memory
            found = [
                attend(attention, x[n], rows, [not causal or m <= n for m in range(len(rows))]) for n in range(len(x))
            ]
            shown.append(torch.stack([weights for _, weights in found], 1))
            return torch.stack([output for output, _ in found])

        return read

    def feed(layer):
        first, _, _, second = layer.feedforward
        return lambda x: torch.relu(x @ first.weight.T + first.bias) @ second.weight.T + second.bias

    def last(norm, x):
        return torch.stack([normalised(row, norm) for row in x]) if isinstance(norm, torch.nn.LayerNorm) else x

    x = embed(model.embeddings.source, src)
    for layer in model.encoder:
        x = sublayer(layer.after_self, x, reader(layer.self_attention, maps[0]))
        x = sublayer(layer.after_feedforward, x, feed(layer))
    memory = last(model.encoder_norm, x)
    x = embed(model.embeddings.tgt_table, tgt)
    for layer in model.decoder:
        x = sublayer(layer.after_self, x, reader(layer.self_attention, maps[1], causal=True))
        x = sublayer(layer.after_cross, x, reader(layer.cross_attention, maps[2], memory))
        x = sublayer(layer.after_feedforward, x, feed(layer))
    return last(model.decoder_norm, x) @ model.embeddings.output.weight.T + model.embeddings.output.bias, maps


@exactly
@pytest.mark.parametrize(
    "options",
    [
        *({"norm": norm, "num_heads": heads} for norm in ("post", "pre") for heads in (1, 2, 4)),
        {"num_heads": 1, "key_size": 3, "output_projection": False},
        {"num_heads": 2, "key_size": 5, "norm": "pre"},
    ],
)
@torch.no_grad()
def test_equals_the_equations(options):
    torch.manual_seed(0)
    model = build(TransformerNMT, **options, encoder_layers=2, decoder_layers=2).eval()
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn_like(parameter)  # also those that begin as 0 or 1
    batch = model.example_batch(4)
    logits, weights = model(batch.src, batch.src_lengths, batch.tgt[:, :-1])
    maps = model.attention_maps(batch.src, batch.src_lengths, batch.tgt[:, :-1])
    for n in range(4):
        s, t = int(batch.src_lengths[n]), int((batch.tgt[n, :-1] != 0).sum())
        want, (encoder, decoder, cross) = naive(model, batch.src[n, :s], batch.tgt[n, :t])
        torch.testing.assert_close(logits[n, :t], want, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(weights[n, :t, :s], cross[-1].mean(0), rtol=1e-9, atol=1e-9)
        for found, wanted, rows, columns in [
            (maps.encoder, encoder, s, s),
            (maps.decoder, decoder, t, t),
            (maps.cross, cross, t, s),
        ]:
            torch.testing.assert_close(found[:, n, :, :rows, :columns], torch.stack(wanted), rtol=1e-9, atol=1e-9)


def test_sizes_of_keys_and_values():
    model = build(TransformerNMT, num_heads=2, key_size=3, output_projection=False)
    for part in (model.encoder[0].self_attention, model.decoder[0].self_attention, model.decoder[0].cross_attention):
        assert part.query.weight.shape == (6, 8) and part.key_value.weight.shape == (6 + 8, 8)
    assert not any(name.endswith("attention.output.weight") for name in model.state_dict())
    plain = build(TransformerNMT, num_heads=2).state_dict()
    same = build(TransformerNMT, num_heads=2, key_size=4).state_dict()  # D / H
    assert {name: x.shape for name, x in plain.items()} == {name: x.shape for name, x in same.items()}


@torch.no_grad()
def test_no_step_sees_a_later_word():
    model = build(TransformerNMT, decoder_layers=2).eval()
    batch = model.example_batch(4)
    tgt = batch.tgt[:, :-1].clone()
    before, _ = model(batch.src, batch.src_lengths, tgt)
    tgt[:, 2:] = 5
    after, _ = model(batch.src, batch.src_lengths, tgt)
    assert torch.equal(before[:, :2], after[:, :2]) and not torch.allclose(before[:, 2:], after[:, 2:])


@exactly
def test_consistency_adds_the_divergence_of_two_passes(monkeypatch):
    torch.manual_seed(0)
    plain = build(TransformerNMT).train()
    model = build(TransformerNMT, consistency=1.5).train()
    model.load_state_dict(plain.state_dict())
    batch = plain.example_batch(4)
    loss, count = model.loss(batch, 0.1)
    want, wanted_count = plain.loss(batch, 0.1)
    assert count == wanted_count
    torch.testing.assert_close(loss, want)  # without dropout both passes are the same

    def noisy(readouts):  # what dropout does, but known: another sign in the second pass
        half = len(readouts) // 2
        return plain.embeddings.logits(torch.cat([readouts[:half], -readouts[half:]]))

    monkeypatch.setattr(model.embeddings, "logits", noisy)
    readouts, _ = plain.decode(batch.tgt[:, :-1], *plain.encode(batch.src, batch.src_lengths))
    labels = batch.tgt[:, 1:]
    expected = 0.0
    for n, t in (labels != 0).nonzero().tolist():
        p, q = (plain.embeddings.logits(sign * readouts[n, t]).softmax(-1) for sign in (1, -1))
        losses = [torch.nn.functional.cross_entropy(x.log(), labels[n, t], label_smoothing=0.1) for x in (p, q)]
        kl = [(a * (a / b).log()).sum() for a, b in ((p, q), (q, p))]
        expected += sum(losses) / 2 + 1.5 * sum(kl) / 2
    torch.testing.assert_close(model.loss(batch, 0.1)[0], expected, rtol=1e-9, atol=1e-9)
    monkeypatch.undo()
    torch.testing.assert_close(model.eval().loss(batch)[0], plain.eval().loss(batch)[0])


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_consistency_is_no_less_than_zero(value):
    with pytest.raises(ValueError, match=f"consistency must be at least 0 and finite; got {value}"):
        build(TransformerNMT, consistency=value)


def test_double_precision_is_kept():
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, 2, 4, 5, 8, dtype=torch.float64)
    found = dot_product_attention(queries, keys, values, None, 0.0, causal=False)
    expected = (queries @ keys.transpose(-1, -2) / 8**0.5).softmax(-1) @ values
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


# ---- what a user looks at ----


@pytest.fixture
def translator():
    torch.manual_seed(0)
    model = build(
        TransformerNMT, src_vocab_size=40, tgt_vocab_size=40, encoder_layers=3, decoder_layers=2, num_heads=4
    ).train()
    model.src_tokenizer = model.tgt_tokenizer = Tokenizer.train(["two dogs run", "a man reads"], "word", 40)
    return model


def test_look_shows_every_layer_and_head(translator):
    look = translator.look("two dogs run", "a man")
    assert look.source_tokens == ["two", "dogs", "run", "</s>"] and look.target_tokens == ["a", "man", "</s>"]
    assert (
        look.encoder.shape == (3, 4, 4, 4) and look.decoder.shape == (2, 4, 3, 3) and look.cross.shape == (2, 4, 3, 4)
    )
    for part in (look.encoder, look.decoder, look.cross):
        torch.testing.assert_close(part.sum(-1), torch.ones(part.shape[:-1]))
    assert (look.decoder.triu(1) == 0).all()
    assert translator.training
    torch.testing.assert_close(look.cross[-1].mean(0), translator.look("two dogs run", "a man").cross[1].mean(0))


def test_look_at_its_own_translation(translator):
    translator.embeddings.output.bias.data[EOS] = -50  # or it would have nothing to say
    found = translator.translate("two dogs run")
    assert len(found.text.split()) > 5
    look = translator.look("two dogs run")
    assert look.target_tokens[:-1] == translator.tgt_tokenizer.tokens(translator.tgt_tokenizer.encode(found.text))


def test_pictures_of_heads(translator, tmp_path):
    look = translator.look("two dogs run", "a man")
    sizes = {}
    for part in ("encoder", "decoder", "cross"):
        sizes[part] = matplotlib.image.imread(look.plot(tmp_path / f"{part}.png", part, layer=0)).shape
    one = matplotlib.image.imread(look.plot(tmp_path / "one.png", heads=[2])).shape
    assert one[1] < sizes["cross"][1] / 2
    text = look.plot(tmp_path / "one.svg", heads=[2]).read_text()
    assert "cross, layer 1, head 2" in text


@pytest.mark.parametrize(
    "options, message",
    [
        ({"part": "both"}, "part must be one of 'encoder', 'decoder', 'cross'; got 'both'"),
        ({"layer": 2}, "layer must be a whole number from 0 to 1, or negative; got 2"),
        ({"layer": -3}, "layer must be a whole number from 0 to 1, or negative; got -3"),
        ({"layer": "1"}, "layer must be a whole number from 0 to 1, or negative; got '1'"),
        ({"heads": [4]}, r"heads must be a list of whole numbers from 0 to 3; got \[4\]"),
        ({"heads": []}, r"heads must be a list of whole numbers from 0 to 3; got \[\]"),
        ({"heads": 2}, "heads must be a list of whole numbers from 0 to 3; got 2"),
    ],
)
def test_pictures_that_there_are_not(translator, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        translator.look("two dogs run", "a man").plot(tmp_path / "a.png", **options)


@pytest.mark.parametrize("pair", [("", "a man"), ("two dogs", "")])
def test_nothing_to_look_at(translator, pair):
    with pytest.raises(ValueError, match="the sentence or its translation is empty"):
        translator.look(*pair)


def test_a_translation_may_be_longer_than_a_source(translator):
    """As in `align`."""
    translator.max_source_tokens = 3
    assert translator.look("two dogs run", "a man reads a man").cross.shape == (2, 4, 6, 4)
    with pytest.raises(ValueError, match="^the sentence has 4 tokens; at most 3 are allowed. Split it into sentences$"):
        translator.look("two dogs run two", "a man")
    with pytest.raises(
        ValueError, match="^the translation of the sentence has 1,001 tokens; at most 1,000 are allowed"
    ):
        translator.look("two dogs run", "man " * 1001)


@pytest.mark.parametrize(
    "pair, kind", [((["two dogs"],), "list"), (("two dogs", ["a man"]), "list"), ((None,), "NoneType")]
)
def test_look_takes_one_sentence(translator, pair, kind):
    with pytest.raises(
        TypeError, match=f"look takes a sentence and, optionally, its translation, as strings; got {kind}"
    ):
        translator.look(*pair)


@pytest.mark.parametrize("default, used", [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)])
def test_positions_are_exact_whatever_the_default_precision(default, used):
    """A trainer sets it to that of the weights; bf16 knows every second number above 256."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        found = positions(600, 4)
    finally:
        torch.set_default_dtype(before)
    assert found.dtype == used
    want = [[math.sin(n), math.cos(n), math.sin(n / 100), math.cos(n / 100)] for n in range(600)]
    torch.testing.assert_close(found.double(), torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-4)
