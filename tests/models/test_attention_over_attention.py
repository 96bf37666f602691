"""Readers: the equations against naive loops, padding and the rest of the batch, pointer sums, unknown words,
`answer`.
"""

import json
import math

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from model_cases import CASES, build
from numeric import agree
from torch.utils.data import DataLoader

from zoo.batches.reading import collate_questions
from zoo.layers.contexts import ContextModel
from zoo.models.attention_over_attention import AttentionOverAttentionReader, attend_over_attention
from zoo.results import Reading
from zoo.tasks.reading import ReadingModule
from zoo.text import EOS, UNK, Tokenizer
from zoo.text.words import BLANK, BLANK_ID, split_words
from zoo.verbs.confidence import Calibration

exactly = pytest.mark.usefixtures("float64")

CASES = [case for case in CASES if issubclass(case.values[0], ReadingModule)]
DOCUMENT = "Alice met the Rabbit . The Rabbit ran , and Alice ran after the Rabbit ; Zog slept ."
QUERY = "`` Wait ! '' cried XXXXX to the Rabbit ."


def collate(documents, queries, candidates=None, answers=None, ids=None):
    """A batch from lists of numbers; the vocabulary id of a number is the number itself."""
    ids = np.arange(60) if ids is None else np.array(ids)
    arrays = [
        [np.array(row, np.int64) for row in rows] for rows in (documents, queries, candidates or [[]] * len(documents))
    ]
    return collate_questions(*arrays, answers, ids)


# ---- equations ----


def naive_over_attention(m):
    """Equations 5 to 9 for one document of D words and one query of L words: M (D, L)."""
    rows, columns = m.shape
    alpha = [
        [math.exp(m[i, j]) / sum(math.exp(m[k, j]) for k in range(rows)) for j in range(columns)] for i in range(rows)
    ]
    beta = [
        [math.exp(m[i, j]) / sum(math.exp(m[i, k]) for k in range(columns)) for j in range(columns)]
        for i in range(rows)
    ]
    mean = [sum(beta[i][j] for i in range(rows)) / rows for j in range(columns)]
    return [sum(alpha[i][j] * mean[j] for j in range(columns)) for i in range(rows)], mean


def test_attention_over_attention_equals_loops_and_ignores_pads():
    torch.manual_seed(0)
    scores = 2 * torch.randn(3, 8, 5)
    lengths, query_lengths = torch.tensor([6, 8, 1]), torch.tensor([5, 2, 3])
    mask, query_mask = torch.arange(8) < lengths.unsqueeze(1), torch.arange(5) < query_lengths.unsqueeze(1)
    found, importance = attend_over_attention(scores, mask, query_mask)
    for n, (rows, columns) in enumerate(zip(lengths.tolist(), query_lengths.tolist())):
        weights, mean = naive_over_attention(scores[n, :rows, :columns].double().numpy())
        assert found[n, :rows].tolist() == pytest.approx(weights, abs=1e-6)
        assert importance[n, :columns].tolist() == pytest.approx(mean, abs=1e-6)
        assert (found[n, rows:] == 0).all() and (importance[n, columns:] == 0).all()
    assert found.sum(1).tolist() == pytest.approx([1, 1, 1])  # 6 of 8: dividing by the padded length would leave 0.75


def test_empty_rows_have_weight_and_gradient_zero():
    scores = torch.randn(3, 4, 3, requires_grad=True)
    mask = torch.tensor([[True] * 4, [False] * 4, [True] * 4])
    query_mask = torch.tensor([[False] * 3, [True] * 3, [True] * 3])
    found, importance = attend_over_attention(scores, mask, query_mask)
    assert found.sum(1).tolist() == pytest.approx([0, 0, 1]) and importance.sum(1).tolist() == pytest.approx([0, 0, 1])
    gradient = torch.autograd.grad((found * torch.randn(3, 4)).sum(), scores)[0]
    assert gradient.isfinite().all() and (gradient[:2] == 0).all() and gradient[2].abs().max() > 0


def encode(encoder, inputs):
    """States of one sequence, both directions, and the last of each, step by step."""
    outputs, last = [], []
    for cell, order in zip(encoder.layers[0], (range(len(inputs)), reversed(range(len(inputs))))):
        state, found = (torch.zeros(1, 4),), {}
        for t in order:
            state = cell(inputs[t : t + 1], state)
            found[t] = state[0][0]
        outputs.append(torch.stack([found[t] for t in range(len(inputs))]))
        last.append(state[0][0])
    return torch.cat(outputs, dim=-1), torch.cat(last)


@exactly
@pytest.mark.parametrize("attention", ["over_attention", "sum"])
@pytest.mark.parametrize("shared", [True, False])
@torch.no_grad()
def test_a_reader_equals_a_loop_over_examples(attention, shared):
    torch.manual_seed(0)
    model = build(AttentionOverAttentionReader, vocab_size=60, attention=attention, shared_encoder=shared).eval()
    model.embedding.weight.mul_(10)
    documents, queries = [[5, 6, 7, 5, 8, 5], [9, 9], [10, 11, 12]], [[7, 20], [9, 21, 22, 10], [30]]
    batch = collate(documents, queries, answers=[5, 9, 30])
    weights, query_weights = model(batch)
    losses, start, query_start = [], 0, 0
    for document, query, answer in zip(documents, queries, (5, 9, None)):
        d, _ = encode(model.encoders[0], model.embedding.weight[document])
        q, last = encode(model.encoders[-1], model.embedding.weight[query])
        if attention == "sum":
            want = torch.softmax(d @ last, 0)
        else:
            want, mean = (torch.tensor(x) for x in naive_over_attention((d @ q.t()).double().numpy()))
            got = query_weights[query_start : query_start + len(query)]
            torch.testing.assert_close(got, mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(weights[start : start + len(document)], want, rtol=1e-9, atol=1e-9)
        if answer:
            losses.append(-math.log(sum(float(w) for w, word in zip(want, document) if word == answer)))
        start, query_start = start + len(document), query_start + len(query)
    loss, count = model.loss(batch)
    assert count == 2 and float(loss) == pytest.approx(sum(losses), rel=1e-4)  # 30 is in the query only


@pytest.mark.numeric
@pytest.mark.parametrize("cls, options", CASES)
@torch.no_grad()
def test_an_example_alone_is_the_example_in_a_batch(model_and_batch):
    model, batch = model_and_batch

    def pairs(model):
        weights, query_weights = model(batch)
        together = model.candidate_probabilities(model.word_probabilities(weights, batch), batch)
        rows, places = weights.split(batch.document_lengths.tolist()), together.split(batch.candidate_counts.tolist())
        for n in range(6):
            alone = batch.select([n])
            found, _ = model(alone)
            yield found, rows[n]
            yield model.candidate_probabilities(model.word_probabilities(found, alone), alone), places[n]
            yield found.sum(), torch.full_like(found.sum(), len(found) > 0)
            assert (found >= 0).all()
        assert (query_weights is None) == (model.config["attention"] == "sum")

    agree(model, pairs)


@pytest.mark.parametrize("attention", ["over_attention", "sum"])
def test_an_empty_document_or_query_counts_nothing_and_hurts_nobody(attention):
    torch.manual_seed(0)
    model = build(AttentionOverAttentionReader, vocab_size=60, attention=attention).train()
    batch = collate([[], [5, 6], [7, 8], []], [[9], [], [9, 10], []], [[5], [], [7, 8], []], [5, 6, 7, 8])
    weights, _ = model(batch)
    assert (weights[:2] == 0).all() and float(weights[2:].sum().detach()) == pytest.approx(1)
    loss, count = model.loss(batch)
    assert count == 2
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    nothing = collate([[], []], [[], []], answers=[5, 6])
    weights, _ = model(nothing)
    assert model.loss(nothing)[1] == 0 and not model.is_right(model.word_probabilities(weights, nothing), nothing).any()


@pytest.mark.parametrize("attention", ["over_attention", "sum"])
@torch.no_grad()
def test_words_of_the_query_may_be_no_answers(attention):
    model = build(AttentionOverAttentionReader, vocab_size=60, attention=attention).eval()
    model.embedding.weight.mul_(10)
    documents, queries = [[5, 6, 7, 5, 8], [9, 9, 10], [], [11]], [[7, 20, 5], [9, 10, 21], [9], []]
    batch = collate(documents, queries, answers=[6, 9, 9, 11])
    before = model(batch)
    model.config["exclude_query_words"] = True
    after = model(batch)
    assert attention == "sum" or torch.equal(after[1], before[1])
    was, now = before[0].tolist(), after[0].tolist()
    assert now[:5] == pytest.approx([0, was[1] / (was[1] + was[4]), 0, 0, was[4] / (was[1] + was[4])], rel=1e-4)
    assert now[5:] == pytest.approx(
        was[5:], rel=1e-4
    )  # the second document has no other words; the last query no words


def test_excluded_words_leave_finite_gradients():
    model = build(AttentionOverAttentionReader, vocab_size=60, exclude_query_words=True).train()
    loss, count = model.loss(
        collate([[5, 6], [7, 8], [9]], [[5], [7, 8], [9]], answers=[5, 7, 9])
    )  # the first answer is excluded
    loss.backward()
    assert count == 3 and all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


# ---- pointer sums, candidates, answers ----


# ---- re-ranking by contexts ----

CONTEXTS = dict(context_size=5, context_embedding_size=7, context_share=0.3)
CONTEXTS |= dict(expectation_weight=0.8, unknown_weight=1.5, vocab_size=20, num_unknown=3, dropout=0.0)


def softmax(scores):
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


@exactly
def test_reranking_equals_a_loop_over_words():
    torch.manual_seed(0)
    model = AttentionOverAttentionReader(**CONTEXTS, embedding_size=6, hidden_size=4).eval()
    plain = AttentionOverAttentionReader(**CONTEXTS | {"context_size": None}, embedding_size=6, hidden_size=4).eval()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("contexts.")})
    ids = np.arange(24)
    ids[20:] = UNK
    documents, queries = [[5, 21, 9, 5, 22, 11], [7, 8]], [[9, BLANK_ID, 21, 7], [BLANK_ID, 9]]
    batch = collate(documents, queries, ids=ids)
    found, expected = model(batch)[0].split([6, 2]), plain(batch)[0].split([6, 2])
    lookup = [int(n) for n in ids]
    with torch.no_grad():
        for document, query, new, old in zip(documents, queries, found, expected, strict=True):
            texts = [torch.tensor([[lookup[n] for n in text]]) for text in (document, query)]
            places, around = (model.contexts(text, torch.tensor([text.size(1)]))[0] for text in texts)
            q = around[query.index(BLANK_ID)]
            near = softmax([15 * float(place @ q / place.norm() / q.norm()) for place in places])
            scores = []
            for n, s, a in zip(document, old.tolist(), near, strict=True):
                e = model.contexts.table.weight[lookup[n]]
                scores.append(math.log(0.7 * s + 0.3 * a) + 0.8 * float(e @ q) + 1.5 * (lookup[n] == UNK))
            assert new.tolist() == pytest.approx(softmax(scores), abs=1e-12)


@exactly
def test_a_context_is_that_of_the_words_around():
    torch.manual_seed(0)
    model = ContextModel(20, 6, 5)
    ids, lengths = torch.randint(1, 20, (3, 7)), torch.tensor([7, 4, 0])
    contexts = model(ids, lengths)
    for place in range(4):
        others = ids.clone()
        others[1, place] = (ids[1, place] + 1) % 20
        changed = (model(others, lengths) - contexts).abs().sum(-1) > 1e-9  # (3, 7)
        assert changed[1, :4].tolist() == [n != place for n in range(4)] and not changed[[0, 2]].any()
    alone = model(ids[1:2, :4], lengths[1:2])
    assert torch.allclose(alone[0], contexts[1, :4], atol=1e-12)
    expected = -torch.cat([(model.output(contexts[n, :k]).log_softmax(-1)) for n, k in ((0, 7), (1, 4))])
    words = torch.cat([ids[0], ids[1, :4]])
    assert float(model.eval().loss(ids, lengths)) == pytest.approx(float(expected[range(11), words].mean()), abs=1e-12)


@exactly
def test_the_loss_of_contexts_in_long_texts_is_that_of_pieces_of_96_words():
    torch.manual_seed(0)
    model, ids = ContextModel(20, 6, 5).eval(), torch.randint(1, 20, (3, 250))
    ids[1, 100:] = ids[2] = 0  # PAD
    pieces = [ids[0, :96], ids[0, 96:192], ids[0, 192:], ids[1, :96], ids[1, 96:100]]
    total = sum(model.loss(piece[None], torch.tensor([len(piece)])).item() * len(piece) for piece in pieces)
    assert float(model.loss(ids, torch.tensor([250, 100, 0]))) == pytest.approx(total / 350, abs=1e-12)


@exactly
@pytest.mark.parametrize("query", [[9, 7], [BLANK_ID, 9, BLANK_ID], []], ids=["no blank", "two blanks", "empty"])
def test_without_one_blank_the_weights_stay(query):
    torch.manual_seed(0)
    model = AttentionOverAttentionReader(**CONTEXTS, embedding_size=6, hidden_size=4).eval()
    batch = collate([[5, 6, 9, 5], [6, 8]], [query, [BLANK_ID, 8]])
    found = model(batch)[0]
    model.contexts, contexts = None, model.contexts
    plain = model(batch)[0]
    assert torch.equal(found[:4], plain[:4]) and not torch.allclose(found[4:], plain[4:]) and contexts is not None


@exactly
def test_excluded_words_stay_excluded_and_an_empty_document_stays_empty():
    model = AttentionOverAttentionReader(**CONTEXTS, exclude_query_words=True, embedding_size=6, hidden_size=4).eval()
    weights = model(collate([[5, 9, 6], []], [[BLANK_ID, 9], [BLANK_ID]]))[0]
    assert weights[1] == 0 and float(weights.sum()) == pytest.approx(1)


@exactly
def test_the_reader_and_its_contexts_learn_beside_each_other():
    torch.manual_seed(0)
    model = AttentionOverAttentionReader(**CONTEXTS, embedding_size=6, hidden_size=4).train()
    model.contexts.sampled_words = 20
    batch = collate([[5, 6, 9, 5], [6, 8]], [[BLANK_ID, 7], [BLANK_ID, 8]], answers=[5, 6], candidates=[[5, 6], [6, 8]])
    loss, count = model.loss(batch)
    contexts, model.contexts = model.contexts, None
    plain, _ = model.loss(batch)
    texts = torch.tensor([[5, 6, 9, 5], [6, 8, 0, 0]]), torch.tensor([4, 2])
    assert count == 2 and float(loss) == pytest.approx(float(plain + 2 * contexts.loss(*texts)), abs=1e-12)


def test_contexts_alone_learn_without_the_reader(monkeypatch):
    model = AttentionOverAttentionReader(**CONTEXTS, embedding_size=6, hidden_size=4).train()
    model.requires_grad_(False).contexts.requires_grad_(True)
    monkeypatch.setattr(model, "forward", None)  # it is not called
    loss, count = model.loss(collate([[5, 6, 9, 5]], [[BLANK_ID, 7]], answers=[5], candidates=[[5, 6]]))
    loss.backward()
    assert count == 1 and model.contexts.table.weight.grad.norm() > 0


def test_a_reader_gets_contexts_later(tmp_path, caplog):
    old = AttentionOverAttentionReader(vocab_size=30, embedding_size=6, hidden_size=4)
    old.save_pretrained(tmp_path / "old")
    new = AttentionOverAttentionReader.from_pretrained(tmp_path / "old", {"context_size": 4})
    assert torch.equal(new.embedding.weight, old.embedding.weight) and new.contexts is not None
    new.save_pretrained(tmp_path / "new")
    again, batch = AttentionOverAttentionReader.from_pretrained(tmp_path / "new"), new.example_batch(5)
    assert torch.equal(again(batch)[0], new(batch)[0]) and again.config["context_size"] == 4
    assert "re-initialised contexts" in caplog.text
    caplog.clear()
    without = AttentionOverAttentionReader.from_pretrained(tmp_path / "new", {"context_size": None})
    assert without.contexts is None and torch.equal(without(batch)[0], old.eval()(batch)[0]) and not caplog.text


def test_distinct_words_are_numbered_as_they_occur():
    batch = collate([[7, 5, 7], [5]], [[9, 7], [5, 6]], [[7, 8, 7, 9], []], [7, 6], ids=np.arange(60) * 2)
    assert batch.words.tolist() == [14, 10, 18, 10, 12] and batch.word_counts.tolist() == [3, 2]
    assert batch.document.tolist() == [0, 1, 0, 0] and batch.query.tolist() == [2, 0, 0, 1]
    assert batch.candidates.tolist() == [0, -1, 0, 2, 0] and batch.candidate_counts.tolist() == [
        4,
        1,
    ]  # none given: the document's
    assert batch.select([1, 0]).candidate_places().tolist() == [0, 2, -1, 2, 4]  # after the two words of the other
    assert batch.answers.tolist() == [0, -1]  # 6 is in the query only
    for part, chosen in zip(collate([[5]], [[5, 6]], [[]], [6], ids=np.arange(60) * 2), batch.select([1])):
        assert torch.equal(part, chosen)
    assert all(torch.equal(a, b) for a, b in zip(batch.select(slice(0, 2)), batch))


def test_places_of_a_word_are_summed_and_candidates_chosen_by_their_sums():
    model = build(AttentionOverAttentionReader)
    batch = collate([[5, 6, 5], [7], [8, 9]], [[20, 5], [20], [20]], [[6, 5, 5, 30], [7], [20, 40]], [5, 7, 8])
    weights = torch.tensor([0.3, 0.4, 0.3, 1.0, 0.5, 0.5])
    probabilities = model.word_probabilities(weights, batch)
    assert probabilities.tolist() == pytest.approx([0.6, 0.4, 0, 1, 0, 0.5, 0.5, 0])
    found = model.candidate_probabilities(probabilities, batch)
    assert found.tolist() == pytest.approx([0.4, 0.6, 0.6, 0, 1, 0, 0])  # a candidate twice has the whole sum twice
    assert model.is_right(probabilities, batch).tolist() == [
        True,
        True,
        False,
    ]  # the last: no candidate is in the document
    absent = batch._replace(answers=torch.tensor([-1, -1, -1]))
    assert not model.is_right(probabilities, absent).any()


@torch.no_grad()
def test_no_answer_is_judged_where_there_is_nothing_to_choose_from(reader):
    questions = [[5, 6, 5], [], []], [[BLANK_ID, 6]] * 3, [[], [], [5, 6]], [6, 5, 5]
    judged = reader.judge(collate(*questions))  # the second has neither words nor candidates
    assert len(judged) == 2 and [evidence.text for evidence, _ in judged][1] == "" and not judged[1][1]


def test_an_answer_that_is_not_there_is_counted_and_not_learnt():
    model = build(AttentionOverAttentionReader, vocab_size=60)
    batch = collate([[5, 6], [7, 8]], [[20], [20]], [[5, 6], [7, 8]], [5, 30])
    options = dict(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer = pl.Trainer(max_epochs=1, **options)
    trainer.fit(model, DataLoader([batch, batch], batch_size=None), DataLoader([batch], batch_size=None))
    assert trainer.callback_metrics["train/absent_answers"] == 2
    alone = build(AttentionOverAttentionReader, vocab_size=60).eval()
    with torch.no_grad():
        assert float(alone.loss(batch)[0]) == pytest.approx(float(alone.loss(batch.select([0]))[0]))
    found = trainer.validate(model, DataLoader([batch, None], batch_size=None), verbose=False)[
        0
    ]  # None: nothing for this process
    assert found["val/accuracy"] in (0, 50)  # the second can never be right
    with torch.no_grad():
        assert found["val/loss"] == pytest.approx(float(model.eval().loss(batch)[0]), rel=1e-4)


@torch.no_grad()
def test_a_loss_of_an_impossible_answer_is_finite():
    model = build(AttentionOverAttentionReader, vocab_size=60, attention="sum").eval()
    model.forward = lambda batch: (torch.tensor([1.0, 0.0]), None)
    loss, _ = model.loss(collate([[5, 6]], [[20]], answers=[6]))
    assert 80 < float(loss) < 100


# ---- unknown words ----


def unknown_reader(**options):
    torch.manual_seed(0)
    return build(AttentionOverAttentionReader, **{"vocab_size": 12, "num_unknown": 4, **options})


def test_unknown_words_are_told_apart_in_the_order_in_which_they_occur():
    ids = [*range(12), UNK, UNK, UNK, UNK, UNK, UNK]
    batch = collate([[13, 5, 12, 13], [14, 12, 13, 15, 16]], [[12, 14], [5]], ids=ids)
    found = unknown_reader().eval().word_ids(batch)
    assert found.tolist() == [12, 5, 13, 14, 12, 13, 14, 15, 12, 5]  # the fifth of four begins anew
    assert unknown_reader(num_unknown=0).eval().word_ids(batch).tolist() == [1, 5, 1, 1, 1, 1, 1, 1, 1, 5]


def test_in_training_their_embeddings_are_shuffled_within_each_example():
    ids = [*range(12), *[UNK] * 4]
    batch = collate([[12, 13, 14, 15]] * 50, [[5]] * 50, ids=ids)
    found = unknown_reader().train().word_ids(batch).view(50, 5)
    assert (found[:, 4] == 5).all() and (found[:, :4].sort(1).values == torch.arange(12, 16)).all()
    assert len({tuple(row) for row in found.tolist()}) > 10


@pytest.mark.parametrize("rates, share", [((0.5, 0.0), 0.5), ((0.0, 0.5), 0.25), ((1.0, 0.0), 1.0), ((0.0, 1.0), 0.5)])
def test_words_and_candidates_are_made_unknown_in_training(rates, share):
    batch = collate([[4, 5, 6, 7] * 2] * 400, [[BLANK_ID]] * 400, [[4, 5, 5, 30]] * 400)
    model = unknown_reader(word_dropout=rates[0], candidate_dropout=rates[1], num_unknown=8).train()
    found = model.word_ids(batch).view(400, 5)
    assert (found[:, 4] == BLANK_ID).all()  # the blank stays what it is
    assert float((found[:, :4] >= 12).float().mean()) == pytest.approx(share, abs=0.08)
    if not rates[0]:
        assert (found[:, 2:4] < 12).all()
    assert torch.equal(model.eval().word_ids(batch), batch.words)


@torch.no_grad()
def test_different_unknown_words_can_be_told_apart_and_pointed_at():
    model = unknown_reader().eval()
    model.embedding.weight.mul_(10)
    ids = [*range(12), UNK, UNK]
    one, other = (collate([[12, 13, 5, second]], [[BLANK_ID, 12]], ids=ids) for second in (12, 13))
    first, second = (model.word_probabilities(model(batch)[0], batch) for batch in (one, other))
    assert len(first) == 4 and (first[:2] - second[:2]).abs().max() > 1e-3


# ---- answer ----


@pytest.fixture(params=["over_attention", "sum"])
def reader(request):
    """A tiny model that knows most words of the document."""
    torch.manual_seed(0)
    model = build(AttentionOverAttentionReader, vocab_size=30, num_unknown=4, attention=request.param).eval()
    model.tokenizer = Tokenizer.train([DOCUMENT.replace("Zog", ""), QUERY], "word", 30)
    with torch.no_grad():
        model.embedding.weight.mul_(10)
    return model


def test_answer_one_or_many(reader):
    one = reader.answer(DOCUMENT, QUERY, ["Alice", "Rabbit", "Zog"])
    assert isinstance(one, Reading) and one.answer == max(one.probabilities, key=one.probabilities.get)
    assert list(one.probabilities) == ["Alice", "Rabbit", "Zog"]
    assert one.document == DOCUMENT.split() and one.query == QUERY.split() and one.tokens == [one.document, one.query]
    assert float(one.weights.sum()) == pytest.approx(1) and len(one.weights) == len(one.document)
    sums = {word: sum(float(w) for w, d in zip(one.weights, one.document) if d == word) for word in one.probabilities}
    assert one.probabilities == pytest.approx(sums, abs=1e-6)
    if reader.config["attention"] == "sum":
        assert one.query_weights is None
    else:
        assert float(one.query_weights.sum()) == pytest.approx(1) and len(one.query_weights) == len(one.query)
    many = reader.answer(
        [DOCUMENT, "Zog , Zog .", DOCUMENT], [QUERY, "XXXXX", QUERY], [["Alice", "Rabbit", "Zog"], None, ["Zog"]]
    )
    assert many[0].probabilities == pytest.approx(one.probabilities, abs=1e-5)
    assert many[2].answer == "Zog" and list(many[1].probabilities) != []
    assert [r.answer for r in reader.answer(DOCUMENT, [QUERY, QUERY])] == [reader.answer(DOCUMENT, QUERY).answer] * 2
    assert reader.answer([], []) == []


@torch.no_grad()
def test_the_blank_is_read_as_in_training(reader):
    """Also where the vocabulary has its mark as a word."""
    document, query = DOCUMENT.split(), QUERY.split()
    words = list(dict.fromkeys([*document, *query]))
    ids = [BLANK_ID if word == BLANK else reader.tokenizer.encode(word)[0] for word in words]
    assert reader.tokenizer.encode(BLANK)[0] > EOS
    numbers = [[[words.index(word) for word in text]] for text in (document, query)]
    weights, _ = reader(collate(*numbers, ids=np.array(ids)))
    torch.testing.assert_close(reader.answer(DOCUMENT, QUERY).weights, weights, check_dtype=False)


def test_without_candidates_any_word_may_be_the_answer(reader):
    found = reader.answer(DOCUMENT, QUERY)
    assert set(found.probabilities) == set(DOCUMENT.split()) and sum(found.probabilities.values()) == pytest.approx(
        1, abs=1e-5
    )
    assert (
        list(found.probabilities)[0] == found.answer
        and list(found.probabilities.values()) == sorted(found.probabilities.values())[::-1]
    )


def test_a_sum_of_rounded_weights_is_at_most_1(reader, monkeypatch):
    above = np.nextafter(np.float32(1), np.float32(2))
    monkeypatch.setattr(reader, "weigh", lambda questions, ids: [(None, None, np.array([above, 0], np.float32))])
    assert reader.answer(DOCUMENT, QUERY, ["Alice", "Rabbit"]).probabilities == {"Alice": 1, "Rabbit": 0}


def test_the_mark_of_the_missing_word_is_no_answer(reader):
    found = reader.answer(f"{DOCUMENT} XXXXX", QUERY)
    assert "XXXXX" not in found.probabilities and found.probabilities


def test_unknown_words_only(reader):
    found = reader.answer("Foo Bar Foo", "Baz XXXXX", ["Foo", "Bar"])
    assert found.answer in ("Foo", "Bar") and sum(found.probabilities.values()) == pytest.approx(1)


def test_accents_may_be_written_in_two_ways(reader):
    composed, decomposed = "Zo\u00e9", "Zoe\u0301"
    assert reader.answer(f"{composed} {decomposed} ran", "XXXXX", [decomposed]).probabilities.keys() == {composed}


def test_answer_keeps_the_mode_and_is_deterministic(reader):
    first = reader.answer(DOCUMENT, QUERY).probabilities
    reader.train()
    assert reader.answer(DOCUMENT, QUERY).probabilities == first and reader.training


def test_raw_text_is_read_like_tokenised_text(reader):
    raw = "Alice met the Rabbit. The Rabbit ran, and Alice ran after the Rabbit; Zog slept."
    assert reader.answer(raw, '"Wait!" cried XXXXX to the Rabbit.').tokens == [DOCUMENT.split(), QUERY.split()]


@pytest.mark.parametrize(
    "text, words",
    [
        ("“Don't,” said Mr. Zog's rabbit-hole.", "`` Do n't , '' said Mr. Zog 's rabbit-hole ."),
        ('He--she "it" can\'t... (yes)', "He -- she `` it '' ca n't ... ( yes )"),
        ("@entity12 , XXXXX's", "@entity12 , XXXXX 's"),
        ("  \n\t", ""),
        ("It’s Zog’s", "It 's Zog 's"),
        ("1,000.5 cats,dogs", "1,000.5 cats , dogs"),
    ],
)
def test_words_of_raw_text(text, words):
    tokenizer = Tokenizer.train(["Mr. `` '' -- ... said @entity12 's n't"], "word", 30)
    assert split_words(text, tokenizer, {BLANK}) == words.split()
    assert split_words(words, tokenizer, {BLANK}) == words.split()
    assert split_words("Mr. Zog-Zog. a.b.", tokenizer, {"a.b."}) == ["Mr.", "Zog-Zog", ".", "a.b."]
    plain = Tokenizer.train(["a"], "word_punct", 30)
    assert split_words("Zog's, a-b", plain) == ["Zog", "'s", ",", "a", "-", "b"]


def test_results_are_written_as_picture_page_and_json(reader, tmp_path):
    for candidates in (["Alice", "Rabbit"], None):
        result = reader.answer(DOCUMENT, QUERY, candidates)
        assert result.plot(tmp_path / "a.png").stat().st_size > 5000
        page = result.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
        assert "slept" in page and f"<h1>{result.answer}</h1>" in page
        found = json.loads(json.dumps(result.to_dict()))
        assert found["answer"] == result.answer and found["document"] == DOCUMENT.split()
        assert (found["query_weights"] is None) == (reader.config["attention"] == "sum") and len(
            found["weights"]
        ) == len(found["document"])


@pytest.mark.parametrize("document", ["Alice " * 3000, "Alice", "\0 \x85 Alice ."])
def test_extreme_texts(reader, document):
    result = reader.answer(document, "XXXXX", ["Alice"])
    assert result.answer == "Alice" and 0 < result.probabilities["Alice"] <= 1.0001


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("", QUERY), "the document has no words; give a text"),
        ((DOCUMENT, " \n"), "the query has no words; give a text"),
        ((DOCUMENT, "Who ran ?"), "the query must have XXXXX in place of the missing word; got 'Who ran [?]'"),
        ((DOCUMENT, QUERY, []), "there are no candidates; give some, or None to choose from all words of the document"),
        (
            (DOCUMENT, QUERY, ["Bob", "alice"]),
            r"none of the candidates is in the document \(upper and lower case differ\): 'Bob', 'alice'",
        ),
        ((DOCUMENT, QUERY, ["Alice Rabbit"]), "a candidate must be one word of the document; got 'Alice Rabbit'"),
        (([DOCUMENT, DOCUMENT], [QUERY]), "there must be as many documents as queries; got 2 and 1"),
        ((DOCUMENT, [QUERY], [["Alice"], None]), "there must be as many lists of candidates as queries; got 2 and 1"),
        (([DOCUMENT, ""], [QUERY, QUERY]), "question 2: the document has no words"),
    ],
)
def test_what_answer_refuses(reader, arguments, message):
    with pytest.raises(ValueError, match=message):
        reader.answer(*arguments)


def test_candidates_from_a_generator(reader):
    given = ["Alice", "Rabbit"]
    assert (
        reader.answer(DOCUMENT, QUERY, (word for word in given)).probabilities
        == reader.answer(DOCUMENT, QUERY, given).probabilities
    )


def test_a_repeated_candidate_counts_once(reader):
    reader.calibration = Calibration("it is right", 0.0, {"score": 1.0}, 0.1, 0.1, language="en")
    once = reader.answer(DOCUMENT, QUERY, ["Alice", "Rabbit"])
    assert once == reader.answer(DOCUMENT, QUERY, ["Alice", "Rabbit", "Alice"]) and once.confidence is not None


def test_candidates_that_are_not_in_the_document_are_named(reader):
    """Beside misspelt words any candidate would be certain: nothing was chosen, so there is no confidence."""
    reader.calibration = Calibration("it is right", 0.0, {"score": 1.0}, 0.1, 0.1, language="en")
    alone = reader.answer(DOCUMENT, QUERY, ["Alice", "rabbit", "Bob"])
    assert alone.answer == "Alice" and alone.probabilities["Bob"] == 0 and alone.confidence is None
    assert alone.warnings[0] == "not in the document, so never the answer: rabbit, Bob"
    two = reader.answer(DOCUMENT, QUERY, ["Alice", "Rabbit", *(f"no{n}" for n in range(11))])
    assert two.confidence is not None and two.warnings[0].endswith(
        "no0, no1, no2, no3, no4, no5, no6, no7, no8, no9, ..."
    )
    both = reader.answer(DOCUMENT, QUERY, ["Alice", "Rabbit"])
    assert both.confidence is not None and not any("not in the document" in warning for warning in both.warnings)


def test_candidates_that_are_no_answers(reader):
    reader.config["exclude_query_words"] = True
    with pytest.raises(
        ValueError,
        match="this model never answers with a word of the query, and the candidates in the document are such words",
    ):
        reader.answer(DOCUMENT, "XXXXX and Alice", ["Alice", "nobody"])
    found = reader.answer(DOCUMENT, "XXXXX and Alice", ["Alice", "Rabbit"])
    assert found.answer == "Rabbit" and found.probabilities["Alice"] == 0 < found.probabilities["Rabbit"]
    only = reader.answer("Alice Alice", "XXXXX and Alice", ["Alice"])  # there is no other word
    assert only.probabilities["Alice"] == pytest.approx(1)


def test_what_answer_does_not_take(reader):
    with pytest.raises(TypeError, match="question 1: the document must be a string; got int"):
        reader.answer([3], [QUERY])
    for wrong, shown in (("Alice", "'Alice'"), (5, "5"), ([1], r"\[1\]"), ({"Alice": 1}, "{'Alice': 1}")):
        with pytest.raises(TypeError, match=f"candidates must be a list of strings; got {shown}"):
            reader.answer(DOCUMENT, QUERY, wrong)
    with pytest.raises(TypeError, match="candidates takes lists of words; got int"):
        reader.answer(DOCUMENT, [QUERY], 5)
    with pytest.raises(TypeError, match="query takes a string or a list of strings; got NoneType"):
        reader.answer(DOCUMENT, None)
    with pytest.raises(TypeError, match="document takes a string or a list of strings; got NoneType"):
        reader.answer(None, [QUERY])
    reader.tokenizer = None
    with pytest.raises(ValueError, match="this model has no tokenizer yet"):
        reader.answer(DOCUMENT, QUERY)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"attention": "dot"}, "attention must be one of 'over_attention', 'sum'; got 'dot'"),
        ({"num_unknown": -1}, "num_unknown must be at least 0; got -1"),
        ({"num_layers": 0}, "num_layers must be at least 1; got 0"),
        ({"word_dropout": 1.5}, r"word_dropout must be in \[0, 1\]; got 1.5"),
        ({"candidate_dropout": -0.1}, r"candidate_dropout must be in \[0, 1\]; got -0.1"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        build(AttentionOverAttentionReader, **options)


@torch.no_grad()
def test_bf16_is_close(reader):
    ids = np.arange(30)
    batch = collate([[5, 6, 7, 5, 8]] * 3, [[9, 10]] * 3, [[5, 6]] * 3, [5] * 3, ids)
    exact, _ = reader.loss(batch)
    with torch.autocast("cpu", torch.bfloat16):
        rough, _ = reader.loss(batch)
    assert rough.dtype == torch.float32 and float(rough) == pytest.approx(float(exact), rel=0.1)


def test_it_learns_to_point_at_what_follows_a_marker():
    """The word behind the marker is the answer, whatever it is: only states, not words, can tell."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = build(
        AttentionOverAttentionReader,
        vocab_size=40,
        embedding_size=16,
        hidden_size=16,
        num_unknown=16,
        candidate_dropout=0.5,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def batch():
        names = [rng.permutation(np.arange(10, 36))[:6] for _ in range(32)]
        documents = [np.stack([np.where(np.arange(6) == n % 6, 5, 6), row], 1).ravel() for n, row in enumerate(names)]
        return collate(documents, [[5, BLANK_ID]] * 32, names, [int(row[n % 6]) for n, row in enumerate(names)])

    for _ in range(120):
        loss, count = model.train().loss(batch())
        optimizer.zero_grad()
        (loss / count).backward()
        optimizer.step()
    seen = batch()
    strange = np.arange(60)
    strange[10:36] = UNK  # names that no vocabulary knows
    for one in (seen, seen._replace(words=torch.from_numpy(strange)[seen.words])):
        with torch.no_grad():
            right = model.eval().is_right(model.word_probabilities(model(one)[0], one), one)
        assert right.float().mean() > 0.9
