"""Word alignments: `align` of a translator, and the alignment error rate."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_cases import build

from zoo.batches.translation import PairBatch, pad_batch
from zoo.metrics import GoldAlignment, alignment_error_rate, diagonal_links, read_gold_alignments
from zoo.models.bahdanau import BahdanauNMT
from zoo.models.luong import LuongNMT
from zoo.models.seq2seq import Seq2SeqNMT
from zoo.models.tutorial_attention import TutorialAttentionNMT
from zoo.results.alignment import Alignment
from zoo.text import Tokenizer

TEXT = ["a black dog runs in the snow .", "two men play in the park ."]


@pytest.fixture(params=["bpe", "word", "char"])
def model(request):
    torch.manual_seed(0)
    found = build(BahdanauNMT, src_vocab_size=40, tgt_vocab_size=40).eval()
    found.src_tokenizer = found.tgt_tokenizer = Tokenizer.train(TEXT, request.param, 40)
    return found


def test_pieces_add_up_to_words(model):
    source, target = "a black dog runs", "two men play"
    found = model.align((source, target))
    assert found.source_words == source.split() and found.target_words == target.split()
    tokenizer = model.src_tokenizer
    ids, tgt = tokenizer.encode(source), tokenizer.encode(target)
    batch = pad_batch([ids], [tgt])
    with torch.no_grad():
        _, weights = model(batch.src, batch.src_lengths, batch.tgt[:, :-1])
    # without the end of either sentence all weight is in the words: the mean over a word's pieces times their number is
    # their sum
    counts = torch.tensor([len(tokenizer.encode("x " + w)) - 1 if tokenizer.kind == "char" and n else len(tokenizer.encode(w))
                           for n, w in enumerate(found.target_words)])  # fmt: skip
    torch.testing.assert_close((found.attention * counts[:, None]).sum(), weights[0, : len(tgt), : len(ids)].sum())
    assert (found.attention.sum(1) < 1).all() and (found.attention > 0).all()


def test_one_many_lists_of_words_and_empty_sides(model):
    one = model.align(("a dog", "two men"))
    many = model.align([("two men play", "a dog runs in"), (["a", "dog"], ["two", "men"]), ("", "a"), ("a", "")])
    torch.testing.assert_close(many[1].attention, one.attention, rtol=1e-4, atol=1e-5)
    assert many[1].links == one.links
    assert (
        many[2].links == many[3].links == [] and many[2].attention.shape == (1, 0) and many[3].attention.shape == (0, 1)
    )
    assert model.align([]) == []


def test_an_alignment_warns_of_words_that_the_model_does_not_know():
    model = build(BahdanauNMT, src_vocab_size=60, tgt_vocab_size=60).eval()
    model.src_tokenizer = model.tgt_tokenizer = Tokenizer.train(TEXT, "word", 60)
    known, unknown = model.align([("a black dog", "two men"), ("xx yy zz", "two men")])
    assert known.confidence is None and known.warnings == []
    assert unknown.warnings == unknown.to_dict()["warnings"] == ["the model knows few of the words"]


def test_a_list_is_needed_for_several_pairs(model):
    with pytest.raises(TypeError, match="batch_size must be an integer; got 'b'"):
        model.align("a", "b")


def test_links_follow_the_weights_and_the_end_of_the_source_takes_none():
    from zoo.verbs.alignment import word_alignment

    weights = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.2, 0.3, 0.1, 0.4], [0.0, 0.25, 0.35, 0.4], [0.0, 0.0, 0.0, 1.0]])
    found = word_alignment(weights, ["ab", "c"], ["x", "yz"], [[4, 5], [6]], [[7], [8, 9]], torch.zeros)
    torch.testing.assert_close(found.attention, torch.tensor([[0.8, 0.1], [0.375, 0.225]]))
    assert found.links == [(0, 0)]  # the end of the source has 0.4 of yz, more than either word
    assert found.to_dict()["links"] == [[0, 0]]


@pytest.mark.parametrize("attention", ["local_p", "local_p_full", "local_p_star"])
def test_what_a_gaussian_takes_does_not_go_to_the_end(attention):
    """Rows of these sum to about a half; a word is linked if it has more than the end of the source, not more than all
    that is missing.
    """
    torch.manual_seed(0)
    model = build(LuongNMT, src_vocab_size=40, tgt_vocab_size=40, attention=attention).eval()
    model.src_tokenizer = model.tgt_tokenizer = Tokenizer.train(TEXT, "word", 40)
    source, target = TEXT
    found = model.align((source, target))
    batch = pad_batch([model.src_tokenizer.encode(source)], [model.tgt_tokenizer.encode(target)])
    with torch.no_grad():
        _, weights = model(batch.src, batch.src_lengths, batch.tgt[:, :-1])
    best = weights[0].argmax(1).tolist()[:-1]
    assert (found.attention.sum(1) < 0.8).all() and found.links
    assert found.links == [(s, t) for t, s in enumerate(best) if s < len(source.split())]


def test_a_target_may_be_longer_than_a_source_of_the_model():
    """As the translations of the model itself are."""
    model = build(TutorialAttentionNMT, src_vocab_size=40, tgt_vocab_size=40, max_length=4).eval()
    model.src_tokenizer = model.tgt_tokenizer = Tokenizer.train(TEXT, "word", 40)
    found = model.align(("two men play", TEXT[0]))
    assert found.attention.shape == (8, 3)
    with pytest.raises(ValueError, match="^text 1 has 7 tokens; at most 3 are allowed. Split it into sentences$"):
        model.align((TEXT[1], "two men"))


def test_what_cannot_be_aligned(model):
    with pytest.raises(TypeError, match="align takes a pair .* got str"):
        model.align(["a dog"])
    with pytest.raises(ValueError, match="text 2 has [0-9,]+ tokens; at most 1,000 are allowed"):
        model.align([("a", "b"), ("dog " * 2000, "men")])
    with pytest.raises(ValueError, match="the translation of text 1 has [0-9,]+ tokens; at most 1,000 are allowed"):
        model.align(("dog", "men " * 2000))
    plain = build(Seq2SeqNMT, src_vocab_size=40, tgt_vocab_size=40).eval()
    plain.src_tokenizer = plain.tgt_tokenizer = model.src_tokenizer
    with pytest.raises(ValueError, match="this model has no attention to align with"):
        plain.align(("a", "b"))
    plain.src_tokenizer = None
    with pytest.raises(ValueError, match="this model has no tokenizer yet"):
        plain.align(("a", "b"))


def test_a_source_longer_than_the_positions_of_the_tutorial_decoder(model):
    short = build(TutorialAttentionNMT, src_vocab_size=40, tgt_vocab_size=40, max_length=3).eval()
    short.src_tokenizer = short.tgt_tokenizer = Tokenizer.train(TEXT, "word", 40)
    assert short.translate("a dog").source_tokens == ["a", "dog", "</s>"]
    with pytest.raises(ValueError, match="text 1 has 3 tokens; at most 2 are allowed"):
        short.translate("a black dog")


def test_plot(tmp_path):
    found = Alignment(["a", "b"], ["c"], torch.tensor([[0.2, 0.7]]), [(1, 0)])
    assert found.plot(tmp_path / "a.png").stat().st_size > 3000


# ---- alignment error rate ----


def test_error_rate_by_hand(tmp_path):
    (tmp_path / "gold").write_text("1-1 2p3 2-2\n1-2\n")
    gold = read_gold_alignments(tmp_path / "gold")
    assert gold[0] == GoldAlignment({(0, 0), (1, 1)}, {(0, 0), (1, 1), (1, 2)})
    found = alignment_error_rate([[(0, 0), (1, 2)], [(0, 0)]], gold)
    # A: 3 links, of them 1 sure and 2 possible; S: 3
    assert found == {"aer": pytest.approx(50.0), "precision": pytest.approx(200 / 3), "recall": pytest.approx(100 / 3)}


@given(st.lists(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1), min_size=1, max_size=4))
def test_the_reference_itself_has_no_error(links):
    gold = [GoldAlignment(found, found) for found in links]
    assert alignment_error_rate(links, gold) == {"aer": 0.0, "precision": 100.0, "recall": 100.0}


@pytest.mark.parametrize("item", ["0-1", "²-1", "1", "a-b"])
def test_bad_references(tmp_path, item):
    (tmp_path / "gold").write_text(f"1-1\n{item}\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=rf"gold, line 2: expected i-j \(sure\) or ipj \(possible\), counted from 1; got '{item}'"
    ):
        read_gold_alignments(tmp_path / "gold")


def test_the_baseline_links_the_words_in_the_middle_of_each_other():
    """The middle of a target word falls on its source word, so a sentence read backwards has the links backwards."""
    assert diagonal_links(3, 3) == {(0, 0), (1, 1), (2, 2)} and diagonal_links(3, 2) == {(0, 0), (2, 1)}
    assert diagonal_links(2, 4) == {(0, 0), (0, 1), (1, 2), (1, 3)} and diagonal_links(0, 2) == set()


def test_scores_of_nothing():
    with pytest.raises(ValueError, match="got 1 sentences and 0 references"):
        alignment_error_rate([[(0, 0)]], [])
    with pytest.raises(ValueError, match="needs links on both sides; got 0 predicted and 1 sure"):
        alignment_error_rate([[]], [GoldAlignment({(0, 0)}, {(0, 0)})])


def test_diagonal():
    assert diagonal_links(4, 4) == {(0, 0), (1, 1), (2, 2), (3, 3)}
    assert diagonal_links(2, 4) == {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert diagonal_links(0, 3) == diagonal_links(3, 0) == set()


# ---- what is no pair ----


@pytest.mark.parametrize(
    "pairs, message",
    [
        (None, r"a pair \(source, target\) or a list of such tuples; got NoneType"),
        (["a b"], r"a pair \(source, target\) or a list of such tuples; got str"),
        ([("a", None)], "texts, or lists of words; got NoneType"),
        (([1, 2], ["a"]), "texts, or lists of words; got int in the list"),
        ((("a", "b"), ("c", "d")), "texts, or lists of words; got tuple"),
        (("a", "b", "c"), r"a pair \(source, target\) or a list of such tuples; got a tuple of 3"),
    ],
)
def test_what_is_no_pair(pairs, message):
    model = build(BahdanauNMT, src_vocab_size=40, tgt_vocab_size=40).eval()
    model.src_tokenizer = model.tgt_tokenizer = Tokenizer.train(TEXT, "word", 40)
    with pytest.raises(TypeError, match=f"align takes {message}"):
        model.align(pairs)


# ---- a source that is too long ----


def test_the_tutorial_model_refuses_sources_that_it_cannot_see_whole():
    model = TutorialAttentionNMT(**{**TutorialAttentionNMT.tiny, "max_length": 4})
    batch = TutorialAttentionNMT(**TutorialAttentionNMT.tiny).example_batch(8)
    assert batch.src_lengths.max() > 4
    with pytest.raises(
        ValueError,
        match=rf"a source has {batch.src_lengths.max()} tokens, its end included, and the model attends to the first 4: leave",
    ):
        model.loss(batch)
    few = batch.src_lengths <= 4
    padded = PairBatch(
        *(part[few] if isinstance(part, torch.Tensor) else part for part in batch)
    )  # pads behind position 4 are none
    model.loss(padded)
