"""What every classifier must do: padding and the rest of the batch never matter, attention is a distribution over real
words, the equations equal naive loops, and `classify` takes whatever a user has."""

import json

import pytest
import torch
from model_cases import CASES, build
from numeric import agree
from torch import nn

from zoo.batches.classification import collate_documents, collate_texts
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.han import HAN, ContextAttention
from zoo.models.structured_self_attention import HopAttention, PrunedMLP, StructuredSelfAttention
from zoo.tasks.classification import (
    Classification,
    ClassificationModule,
    DocumentClassification,
    DocumentClassifier,
    TextClassifier,
)
from zoo.text import Tokenizer

exactly = pytest.mark.usefixtures("float64")

CASES = [case for case in CASES if issubclass(case.values[0], ClassificationModule)]
TEXT_CASES = [case for case in CASES if issubclass(case.values[0], TextClassifier)]
CLASSES = sorted({case.values[0] for case in CASES}, key=lambda c: c.__name__)
TEXT = "One dog barks. Another dog sleeps all day.\n\nNo cat is here!"


@pytest.mark.numeric
@pytest.mark.parametrize("cls, options", CASES)
@torch.no_grad()
def test_a_text_alone_is_the_text_in_a_batch(model_and_batch):
    model, batch = model_and_batch

    def pairs(model):
        together, _ = model(batch)
        assert together.isfinite().all() and together.shape == (6, 3)
        for n in range(6):
            yield model(batch.select([n]))[0][0], together[n]

    agree(model, pairs)


@pytest.mark.numeric
@pytest.mark.parametrize("cls, options", TEXT_CASES)
@torch.no_grad()
def test_padding_changes_nothing(model_and_batch):
    model, batch = model_and_batch
    names = [name for name in ("tokens", "tokens2") if getattr(batch, name) is not None]
    wide = batch._replace(**{name: nn.functional.pad(getattr(batch, name), (0, 9)) for name in names})

    def pairs(model):
        (padded_logits, padded_weights), (logits, weights) = model(wide), model(batch)
        yield padded_logits, logits
        for a, b in zip(weights, padded_weights, strict=True):
            yield b[..., : a.size(-1)], a
            assert (b[..., a.size(-1) :] == 0).all()

    agree(model, pairs)


@pytest.mark.parametrize("cls, options", TEXT_CASES)
@torch.no_grad()
def test_attention_is_a_distribution_over_real_words(model_and_batch):
    model, batch = model_and_batch
    _, weights = model(batch)
    for a, lengths in zip(weights, (batch.lengths, batch.lengths2)):
        real = torch.arange(a.size(-1)) < lengths.view(-1, 1, 1)
        assert (a >= 0).all() and (a.masked_select(~real) == 0).all()
        total = a.sum(-1)
        assert (total[lengths == 0] == 0).all()
        if model.config.get("attention") == "none":
            assert (total == 0).all()
        elif (
            model.config.get("attention") in ("local_p", "local_p_full", "local_p_star")
            and not model.config["renormalize"]
        ):
            assert ((total > 0) & (total <= 1.0001))[
                lengths > 0
            ].all()  # the Gaussian or the gate takes some of it away
        else:
            torch.testing.assert_close(total[lengths > 0], torch.ones_like(total[lengths > 0]))


# ---- equations ----


def naive_context_attention(attention, items):
    scores = [attention.context @ torch.tanh(attention.project(h)) for h in items]
    weights = torch.softmax(torch.stack(scores), dim=0)
    return sum(w * h for w, h in zip(weights, items)), weights


@exactly
@torch.no_grad()
def test_han_equals_a_loop_over_documents_sentences_and_words():
    torch.manual_seed(0)
    model = build(HAN).eval()
    documents = [[[4, 5, 6], [7]], [], [[8, 9], [4, 4, 10, 11], [5]]]
    batch = collate_documents(documents)
    logits, (word_weights, sentence_weights) = model(batch)

    def encode(encoder, items):  # one sequence, without any packing
        outputs = []
        for cell, order in zip(encoder.layers[0], (range(len(items)), reversed(range(len(items))))):
            state, found = (torch.zeros(1, 4),), {}
            for t in order:
                state = cell(items[t : t + 1], state)
                found[t] = state[0][0]
            outputs.append(torch.stack([found[t] for t in range(len(items))]))
        return torch.cat(outputs, dim=-1)

    seen_words, seen_sentences = [], []
    for n, document in enumerate(documents):
        vector = torch.zeros(8)
        if document:
            sentences = []
            for words in document:
                s, w = naive_context_attention(
                    model.word_attention, encode(model.word_encoder, model.embedding(torch.tensor(words)))
                )
                sentences.append(s)
                seen_words.append(w)
            vector, w = naive_context_attention(
                model.sentence_attention, encode(model.sentence_encoder, torch.stack(sentences))
            )
            seen_sentences.append(w)
        torch.testing.assert_close(logits[n], model.classifier(vector), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(word_weights, torch.cat(seen_words))
    torch.testing.assert_close(sentence_weights, torch.cat(seen_sentences))


def test_han_reads_sentences_in_their_order():
    torch.manual_seed(0)
    model = build(HAN).eval()
    forward, backward = [[4], [5, 6], [7]], [[7], [5, 6], [4]]
    logits, _ = model(collate_documents([forward, backward]))
    assert (logits[0] - logits[1]).abs().max() > 1e-5


def test_context_attention_of_an_empty_sequence_is_zero_with_zero_gradient():
    attention = ContextAttention(4, 3)
    items = torch.randn(2, 4, requires_grad=True)
    sums, weights = attention(items, torch.tensor([0, 2, 0]))
    assert (sums[0] == 0).all() and (sums[2] == 0).all() and float(weights.detach().sum()) == pytest.approx(1)
    assert torch.autograd.grad(sums[0].sum() + sums[2].sum(), items)[0].abs().max() == 0


def test_hops_equal_a_loop():
    torch.manual_seed(0)
    attention = HopAttention(6, 5, 3, dropout=0.0)
    states, mask = torch.randn(5, 6), torch.tensor([[True, True, True], [True, True, False], [False, False, False]])
    m, weights = attention(states, mask)
    for row, h in enumerate(states.split([3, 2, 0])):
        a = torch.softmax(attention.w_s2(torch.tanh(attention.w_s1(h))), dim=0).t()  # (r, n)
        torch.testing.assert_close(weights[row, :, : len(h)], a)
        torch.testing.assert_close(m[row], a @ h)


def test_penalty_is_the_squared_frobenius_norm_summed_over_hops_and_texts():
    model = build(StructuredSelfAttention, penalty=0.5, pair=True)
    torch.manual_seed(0)
    attention = [torch.rand(4, 2, 7).softmax(-1), torch.rand(4, 2, 3).softmax(-1)]
    want = 0.0
    for weights in attention:
        for a in weights:
            for i in range(2):
                for j in range(2):
                    want += 0.5 * (float(a[i] @ a[j]) - (i == j)) ** 2
    assert float(model.penalty(attention)) == pytest.approx(want)
    padded = [nn.functional.pad(weights, (0, 5)) for weights in attention]
    assert float(model.penalty(padded)) == pytest.approx(want)  # its strength does not depend on padding
    assert build(StructuredSelfAttention, penalty=0.0).penalty(attention) == 0.0


def test_overlap_of_hops():
    model = build(StructuredSelfAttention, hops=3)
    same, apart = torch.tensor([[0.5, 0.5, 0.0]] * 3), torch.eye(3)
    mixed = torch.stack([same[0], same[0], apart[2]])  # pairs: 1, 0, 0
    assert model.measure([torch.stack([same, apart, mixed])])["overlap"].tolist() == pytest.approx([1, 0, 1 / 3])
    assert build(StructuredSelfAttention, hops=1).measure([same[:1].unsqueeze(0)])["overlap"].tolist() == [0]


@torch.no_grad()
def test_penalty_is_part_of_the_training_loss_only():
    torch.manual_seed(0)
    plain, with_penalty = (build(StructuredSelfAttention, penalty=p).eval() for p in (0.0, 2.0))
    with_penalty.load_state_dict(plain.state_dict())
    batch = plain.example_batch(5)
    logits, attention = plain(batch)
    difference = with_penalty.loss(batch)[0] - plain.loss(batch)[0]
    assert float(difference) == pytest.approx(float(with_penalty.penalty(attention)), rel=1e-4)
    assert float(difference) > 1


def test_pruned_mlp_is_a_dense_layer_with_most_connections_cut():
    torch.manual_seed(0)
    hops, size, p, q = 3, 4, 2, 5
    pruned, m = PrunedMLP(hops, size, p, q), torch.randn(2, hops, size)
    nn.init.normal_(pruned.row_bias), nn.init.normal_(pruned.column_bias)
    dense = torch.zeros(hops * p + size * q, hops, size)
    for hop in range(hops):
        for unit in range(p):
            dense[hop * p + unit, hop] = pruned.rows[hop, :, unit]
    for column in range(size):
        for unit in range(q):
            dense[hops * p + column * q + unit, :, column] = pruned.columns[column, :, unit]
    bias = torch.cat([pruned.row_bias.flatten(), pruned.column_bias.flatten()])
    torch.testing.assert_close(pruned(m), torch.relu(m.flatten(1) @ dense.flatten(1).t() + bias))


@torch.no_grad()
def test_pairs_are_compared_hop_by_hop():
    torch.manual_seed(0)
    model = build(StructuredSelfAttention, pair=True).eval()
    batch = collate_texts([[4, 5, 6]], texts2=[[7, 8]])
    logits, _ = model(batch)
    m1, _ = model.embed_text(batch.tokens, batch.lengths)
    m2, _ = model.embed_text(batch.tokens2, batch.lengths2)
    first, second = model.gates
    f = torch.stack([(m1[0, r] @ first[r]) * (m2[0, r] @ second[r]) for r in range(2)])
    torch.testing.assert_close(logits, model.classifier(model.mlp(f.unsqueeze(0))))


@torch.no_grad()
def test_the_last_states_ask_and_local_m_looks_at_the_end():
    torch.manual_seed(0)
    model = build(AttentionClassifier, attention="local_m", window=2).eval()
    batch = collate_texts([[4, 5, 6, 7, 8, 9], [4, 5]])
    logits, (weights,) = model(batch)
    assert (weights[0, 0, :3] == 0).all() and (weights[0, 0, 3:] > 0).all()
    assert (weights[1, 0, :2] > 0).all()
    states, finals = model.encoder(model.embedding(batch.tokens), batch.lengths)
    query, window = finals[0][0][0], states[0, 3:]
    a = torch.softmax(window @ model.attention.score.w_a.weight.t() @ query, dim=0)
    hidden = torch.tanh(model.w_c(torch.cat([a @ window, query])))
    torch.testing.assert_close(logits[0], model.classifier(hidden))


@torch.no_grad()
def test_mean_pooling_and_the_last_state_alone(tmp_path):
    """score: uniform takes the mean of the real states, attention: none has W_c of the last states only."""
    torch.manual_seed(0)
    batch = collate_texts([[4, 5, 6, 7], [8, 9]])
    mean, last = (build(AttentionClassifier, **kind).eval() for kind in ({"score": "uniform"}, {"attention": "none"}))
    for model in (mean, last):
        logits, (weights,) = model(batch)
        states, finals = model.encoder(model.embedding(batch.tokens), batch.lengths)
        for n, length in enumerate(batch.lengths.tolist()):
            query = finals[-1][0][n]
            read = torch.cat([states[n, :length].mean(0), query]) if model is mean else query
            torch.testing.assert_close(logits[n], model.classifier(torch.tanh(model.w_c(read))))
            share = 1 / length if model is mean else 0.0
            assert weights[n, 0].tolist() == pytest.approx([share] * length + [0.0] * (4 - length))
    assert last.w_c.weight.shape == (8, 8) and mean.w_c.weight.shape == (8, 16)
    assert sum(p.numel() for p in mean.attention.parameters()) == 0
    last = build(AttentionClassifier, attention="none", vocab_size=30)
    last.tokenizer, last.label_names = Tokenizer.train([TEXT], "word_punct", 30), ["bad", "so so", "good"]
    result = last.classify(TEXT)
    assert not result.attention[0].any() and result.attention[0].shape == (1, len(result.tokens[0]))
    assert result.plot(tmp_path / "a.png").stat().st_size > 5000
    assert "sleeps" in result.to_html(tmp_path / "a.html").read_text(encoding="utf-8")


# ---- classify ----


@pytest.fixture(params=CLASSES, ids=lambda c: c.__name__)
def reader(request):
    """A tiny model that knows a few words."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.train([TEXT], "word_punct", 30, lowercase=True)
    model = build(request.param, vocab_size=30).eval()
    model.tokenizer, model.label_names = tokenizer, ["bad", "so so", "good"]
    return model


def test_classify_one_or_many(reader):
    many = reader.classify([TEXT, "", "dog", "zebra ☃ zebra"])
    assert len(many) == 4
    one = reader.classify(TEXT)
    assert one.label == many[0].label == max(one.probabilities, key=one.probabilities.get) and one.labels == [one.label]
    assert list(one.probabilities) == ["bad", "so so", "good"] and sum(one.probabilities.values()) == pytest.approx(1)
    for a, b in zip(one.probabilities.values(), many[0].probabilities.values()):
        assert a == pytest.approx(b, abs=1e-5)
    assert reader.classify([]) == []
    assert many[1].label in reader.label_names and not any(many[1].tokens)  # an empty text has a class and no words


def test_classify_keeps_order_and_mode(reader):
    reader.train()
    texts = ["dog " * n for n in (9, 1, 40, 0, 3)]
    sizes = [sum(map(len, result.tokens)) for result in reader.classify(texts)]
    assert sizes == [9, 1, 40, 0, 3]
    assert reader.training


def test_attention_belongs_to_the_words(reader):
    result = reader.classify(TEXT)
    if isinstance(reader, DocumentClassifier):
        assert isinstance(result, DocumentClassification)
        assert result.words == [
            ["One", "dog", "barks", "."],
            ["Another", "dog", "sleeps", "all", "day", "."],
            ["No", "cat", "is", "here", "!"],
        ]
        assert result.sentences[0] == "One dog barks ."
        assert result.sentence_weights.sum() == pytest.approx(1) and len(result.sentence_weights) == 3
        assert [len(w) for w in result.word_weights] == [4, 6, 5]
        assert all(float(w.sum()) == pytest.approx(1, abs=1e-5) for w in result.word_weights)
    else:
        assert isinstance(result, Classification)
        (tokens,), (attention,) = result.tokens, result.attention
        assert tokens[:4] == ["One", "dog", "barks", "."]
        assert attention.shape == (reader.config.get("hops", 1), len(tokens))
        torch.testing.assert_close(attention.sum(-1), torch.ones(len(attention)))


def test_results_are_written_as_picture_page_and_json(reader, tmp_path):
    result = reader.classify(TEXT)
    assert result.plot(tmp_path / "a.png").stat().st_size > 5000
    assert "sleeps" in result.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    found = json.loads(json.dumps(result.to_dict()))
    assert found["label"] == result.label and "sleeps" in json.dumps(found)


@pytest.mark.parametrize("text", ["word " * 3000, "One sentence. " * 2000, ". . . !", "\0\n\t"])
def test_extreme_texts(reader, text):
    result = reader.classify(text)
    assert result.label in reader.label_names and all(0 <= p <= 1 for p in result.probabilities.values())


def test_several_labels_at_once(reader):
    model = build(type(reader), vocab_size=30, multi_label=True)
    model.tokenizer, model.label_names = reader.tokenizer, reader.label_names
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([1.0, -1.0, 2.0]))
    result = model.classify(TEXT)
    assert result.labels == ["good", "bad"] and result.label == "good"
    model.classifier.bias.data.fill_(-1)
    result = model.classify(TEXT)
    assert result.labels == [] and result.label is None


def test_embed():
    torch.manual_seed(0)
    model = build(StructuredSelfAttention, vocab_size=30)
    with pytest.raises(ValueError, match="this model has no tokenizer yet"):
        model.embed("a")
    model.tokenizer = Tokenizer.train([TEXT], "word_punct", 30)
    found = model.embed([TEXT, "", "dog"])
    assert found.shape == (3, 2 * 2 * 4) and (found[1] == 0).all() and (found[0] != 0).any()
    torch.testing.assert_close(model.embed("dog"), found[2:])
    assert model.embed([]).shape == (0, 16)
    for wrong, got in ((["a", 3], "int in the list, as number 2"), ([("a", "b")], "tuple in the list"), (None, "None")):
        with pytest.raises(TypeError, match=f"embed takes a string or a list of strings; got {got}"):
            model.embed(wrong)


def test_a_model_of_pairs_takes_pairs():
    model = build(StructuredSelfAttention, vocab_size=30, pair=True)
    model.tokenizer, model.label_names = Tokenizer.train([TEXT], "word_punct", 30), ["yes", "no", "maybe"]
    one = model.classify(("dog", "cat sleeps"))
    assert one.tokens == [["dog"], ["cat", "sleeps"]] and [a.shape for a in one.attention] == [(2, 1), (2, 2)]
    half, empty, marks, whole = model.classify([("dog", ""), ("", ""), ("dog", "..."), ("dog", "cat")])
    assert half.warnings == marks.warnings == ["one of the texts has no words"]
    assert empty.warnings == ["the text has no words"] and whole.warnings == []
    for wrong in ("dog", [("a", "b", "c")], ["dog"]):
        with pytest.raises(TypeError, match="this model reads pairs of texts"):
            model.classify(wrong)


def test_what_classify_does_not_take(reader):
    with pytest.raises(TypeError, match="classify takes a string or a list of strings; got int"):
        reader.classify(["a", 3])
    reader.label_names = None
    with pytest.raises(ValueError, match="the last layer of this model is new and has no labels yet; train it on "):
        reader.classify("a")
    reader.tokenizer = None
    with pytest.raises(ValueError, match="this model has no tokenizer yet"):
        reader.classify("a")


@pytest.mark.parametrize(
    "cls, options, message",
    [
        (HAN, {"num_classes": 1}, "num_classes must be at least 2; got 1"),
        (HAN, {"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\); got 1.0"),
        (HAN, {"word_dropout": -0.1}, r"word_dropout must be in \[0, 1\); got -0.1"),
        (StructuredSelfAttention, {"hops": 0}, "hops must be at least 1; got 0"),
        (
            StructuredSelfAttention,
            {"row_units": 3},
            "row_units and column_units must be set together, to at least 1, or both be 0; got 3 and 0",
        ),
        (StructuredSelfAttention, {"row_units": -1, "column_units": -1}, "or both be 0; got -1 and -1"),
        (AttentionClassifier, {"hidden_size": 7}, "hidden_size must be even for a bidirectional encoder"),
        (
            AttentionClassifier,
            {"attention": "local_p", "score": "location"},
            "score 'location' works only with attention 'global'",
        ),
    ],
)
def test_bad_arguments(cls, options, message):
    with pytest.raises(ValueError, match=message):
        build(cls, **options)


def test_a_new_number_of_classes_is_a_new_head(reader, tmp_path):
    folder = reader.save_pretrained(tmp_path / "bundle")
    again = type(reader).from_pretrained(folder, {"num_classes": 5})
    assert again.label_names is None and again.tokenizer.to_json() == reader.tokenizer.to_json()
    assert torch.equal(again.embedding.weight, reader.embedding.weight)
    assert type(reader).from_pretrained(folder).label_names == reader.label_names


def test_self_attention_without_a_hidden_layer():
    model = StructuredSelfAttention(**StructuredSelfAttention.tiny | {"mlp_size": 0})
    assert model.classifier.in_features == model.config["hops"] * 2 * model.config["hidden_size"]
    loss, _ = model.loss(model.example_batch(3))
    loss.backward()
    assert model.classifier.weight.grad.abs().sum() > 0
    with pytest.raises(ValueError, match="mlp_size must be at least 0; got -1"):
        StructuredSelfAttention(**StructuredSelfAttention.tiny | {"mlp_size": -1})
