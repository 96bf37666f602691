"""What every translation model must do: padding and the rest of the batch never matter, attention is a distribution
over real tokens, a step of the search is a step of teacher forcing, and `translate` takes whatever a user has."""

import re

import pytest
import torch
from model_cases import CASES, build
from numeric import agree

from zoo.layers.masking import lengths_to_mask
from zoo.tasks.translation import TranslationModule
from zoo.text import EOS, PAD, Tokenizer

CASES = [case for case in CASES if issubclass(case.values[0], TranslationModule)]
CLASSES = sorted({case.values[0] for case in CASES}, key=lambda c: c.__name__)


def pad(ids, columns):
    return torch.nn.functional.pad(ids, (0, columns), value=PAD)


@pytest.mark.parametrize("cls, options", CASES)
@torch.no_grad()
def test_shapes_and_attention(model_and_batch):
    model, batch = model_and_batch
    logits, weights = model(batch.src, batch.src_lengths, batch.tgt[:, :-1])
    B, T = batch.tgt[:, :-1].shape
    assert logits.shape == (B, T, model.config["tgt_vocab_size"])
    assert logits.dtype == torch.float32 and logits.isfinite().all()
    if weights is None:
        return
    assert weights.shape == (B, T, batch.src.size(1))
    assert (weights >= 0).all()
    mask = lengths_to_mask(batch.src_lengths, batch.src.size(1))
    assert (weights[~mask.unsqueeze(1).expand_as(weights)] == 0).all()
    # local-p multiplies by a Gaussian and local-p* by a gate: their weights sum to less than 1, unless renormalised
    gated = (
        model.config.get("attention", "global") in ("local_p", "local_p_full", "local_p_star")
        and not model.config["renormalize"]
    )
    total = weights.sum(-1)
    if gated:
        assert (total > 0).all() and (total < 1).all()
    else:
        torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.numeric
@pytest.mark.parametrize("cls, options", CASES)
@torch.no_grad()
def test_padding_changes_nothing(model_and_batch):
    model, batch = model_and_batch
    wide = batch._replace(src=pad(batch.src, 5), tgt=pad(batch.tgt, 3))

    def pairs(model):
        logits, weights = model(batch.src, batch.src_lengths, batch.tgt[:, :-1])
        padded, padded_weights = model(wide.src, wide.src_lengths, wide.tgt[:, :-1])
        assert padded.dtype == model.embeddings.output.weight.dtype
        yield padded[:, : logits.size(1)], logits
        if weights is not None:
            yield padded_weights[:, : weights.size(1), : weights.size(2)], weights
        (more_loss, more_tokens), (loss, tokens) = model.loss(wide), model.loss(batch)
        yield more_loss, loss
        assert more_tokens == tokens

    agree(model, pairs)


@pytest.mark.numeric
@pytest.mark.parametrize("cls, options", CASES)
@torch.no_grad()
def test_a_sentence_alone_is_the_sentence_in_a_batch(model_and_batch):
    model, batch = model_and_batch

    def pairs(model):
        together = model._search(batch.src, batch.src_lengths, beam_size=3, n_best=2, max_length=6)
        logits, _ = model(batch.src, batch.src_lengths, batch.tgt[:, :-1])
        for n, length in enumerate(batch.src_lengths.tolist()):
            row, lengths = batch.src[n : n + 1, :length], batch.src_lengths[n : n + 1]
            yield model(row, lengths, batch.tgt[n : n + 1, :-1])[0][0], logits[n]
            found = model._search(row, lengths, beam_size=3, n_best=2, max_length=6)
            yield found.scores[0], together.scores[n]
            yield found.tokens[0], together.tokens[n, :, : found.tokens.size(2)]

    agree(model, pairs)


@pytest.mark.numeric
@pytest.mark.parametrize("cls, options", CASES)
@torch.no_grad()
def test_a_step_of_the_search_is_a_step_of_teacher_forcing(model_and_batch):
    model, batch = model_and_batch

    def pairs(model):
        memory, state = model.encode(batch.src, batch.src_lengths)
        readouts, weights = model.decode(batch.tgt[:, :-1], memory, state)
        state = tuple(x.unsqueeze(1).repeat_interleave(2, dim=1) for x in state)  # two hypotheses
        for t in range(readouts.size(1)):
            readout, state, weight = model.step(batch.tgt[:, t : t + 1].repeat(1, 2), state, memory, t)
            yield readout, readouts[:, t : t + 1].expand_as(readout)
            if weights is not None:
                yield weight, weights[:, t : t + 1].expand_as(weight)

    agree(model, pairs)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(
        ["a dog runs in the snow .", "two men play"], kind="char", vocab_size=40
    )  # of which it uses 20


@pytest.fixture(params=CLASSES, ids=lambda c: c.__name__)
def translator(request, tokenizer):
    torch.manual_seed(0)
    model = build(request.param, src_vocab_size=40, tgt_vocab_size=40).eval()
    model.src_tokenizer = model.tgt_tokenizer = tokenizer
    model.embeddings.output.bias.data[EOS] = -2  # an untrained model that does not stop at once
    return model


def test_translate_one_many_none_and_empty(translator):
    one = translator.translate("a dog", beam_size=2, n_best=2)
    assert isinstance(one.text, str) and len(one.n_best) == 2 and one.n_best[0] == (one.text, one.score)
    assert one.n_best[0][1] >= one.n_best[1][1]
    many = translator.translate(["", "a dog", "two men play in the snow", " "], beam_size=2)
    many[0].warnings.append("of this text alone")
    assert many[3].warnings == []
    assert many[0].tokens == many[3].tokens == [] and many[0].text == many[3].text == ""
    assert many[1].tokens == one.tokens
    assert many[1].score == pytest.approx(one.score, rel=1e-4)
    assert translator.translate([]) == []
    if one.attention is not None:
        assert one.attention.shape == (len(one.tokens), len(one.source_tokens))
        assert many[2].attention.shape == (len(many[2].tokens), len(many[2].source_tokens))


def test_a_batch_is_at_least_one_sentence(translator):
    for call in (
        lambda: translator.translate(["a dog"], batch_size=0),
        lambda: translator.align([("a", "b")], batch_size=-1),
    ):
        with pytest.raises(ValueError, match="batch_size must be at least 1; got"):
            call()


def test_alternatives_differ_in_their_text(translator, monkeypatch):
    """A subword model can write a word in several ways."""
    wanted = translator.translate("a dog", beam_size=5, n_best=5).n_best
    decode = translator.tgt_tokenizer.decode
    monkeypatch.setattr(translator.tgt_tokenizer, "decode", lambda *ids: decode(*ids)[:2])
    best = dict(reversed([(text[:2], score) for text, score in wanted]))  # of each text the best score
    assert len(best) < 5
    found = translator.translate("a dog", beam_size=5, n_best=3)
    assert (
        found.n_best
        == [(text, pytest.approx(score, rel=1e-4)) for text, score in sorted(best.items(), key=lambda e: -e[1])][:3]
    )
    assert found.text == found.n_best[0][0] and found.score == found.n_best[0][1]


def test_an_empty_text_has_one_translation(translator):
    assert translator.translate("", beam_size=5, n_best=3).n_best == [("", 0.0)]
    assert translator.translate("", temperature=1.0, n_best=3).n_best == [("", 0.0)] * 3  # as many samples as asked for


def test_translate_by_sampling(translator):
    torch.manual_seed(0)
    drawn = translator.translate("a dog", temperature=1.0, n_best=4)
    assert len(drawn.n_best) == 4 and len({text for text, _ in drawn.n_best}) > 1
    greedy = translator.translate("a dog", beam_size=1)
    assert translator.translate("a dog", temperature=0.5, top_k=1).tokens == greedy.tokens
    with pytest.raises(ValueError, match="temperature must be"):
        translator.translate("a dog", temperature=0.0)


def test_translate_unknown_characters_and_emoji(translator):
    out = translator.translate("a 🐕 läuft\n\u0000 中文")
    assert isinstance(out.text, str) and "<unk>" not in out.text
    assert "<unk>" in out.source_tokens


def test_translate_refuses_what_is_too_long_or_no_text(translator):
    limit = "29" if "max_length" in translator.config else "1,000"
    with pytest.raises(
        ValueError, match=rf"text 2 has [0-9,]+ tokens; at most {limit} are allowed. Split it into sentences"
    ):
        translator.translate(["a dog", "dog " * 5000])
    with pytest.raises(TypeError, match="a string or a list of strings; got int in the list, as number 2$"):
        translator.translate(["a", 3])
    with pytest.raises(TypeError, match="got NoneType in the list, as number 1$"):
        translator.translate([None])
    with pytest.raises(ValueError, match="beam_size must be from 1 to 100; got -1"):
        translator.translate("a dog", beam_size=-1)
    with pytest.raises(ValueError, match="n_best must be between 1 and beam_size = 2; got 3"):
        translator.translate("a dog", beam_size=2, n_best=3)
    translator.src_tokenizer = None
    with pytest.raises(ValueError, match="this model has no tokenizer yet"):
        translator.translate("a dog")


def test_translate_keeps_the_training_mode(translator):
    translator.train()
    translator.translate("a dog")
    assert translator.training


def test_plot(translator, tmp_path):
    out = translator.translate("a dog runs")
    if out.attention is None:
        with pytest.raises(ValueError, match="this model has no attention to plot"):
            out.plot(tmp_path / "a.png")
        return
    assert out.plot(tmp_path / "a.png").stat().st_size > 5000
    with pytest.raises(ValueError, match="an empty translation has no attention to plot"):
        translator.translate("").plot(tmp_path / "b.png")
    assert not (tmp_path / "b.png").exists()


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_bad_arguments(cls):
    with pytest.raises(ValueError, match=r"label_smoothing must be in \[0, 1\); got 1.5"):
        build(cls, label_smoothing=1.5)
    with pytest.raises(
        ValueError, match="shared_vocab needs equal vocabulary sizes; got src_vocab_size 5 and tgt_vocab_size 6"
    ):
        cls(**{**cls.tiny, "shared_vocab": True, "src_vocab_size": 5, "tgt_vocab_size": 6})


@pytest.mark.parametrize(
    "name, options, message",
    [
        (
            "LuongNMT",
            {"score": "genral"},
            "score must be one of 'dot', 'scaled_dot', 'general', 'concat', 'location'; got 'genral'",
        ),
        (
            "LuongNMT",
            {"attention": "local"},
            "attention must be one of 'global', 'local_m', 'local_p', 'local_p_full', 'local_p_star'; got 'local'",
        ),
        ("LuongNMT", {"cell": "rnn"}, "cell must be one of 'lstm', 'gru'; got 'rnn'"),
        ("LuongNMT", {"hidden_size": 7}, "hidden_size must be even"),
        ("LuongNMT", {"attentional_state": False}, "set input_feeding to false if attentional_state is false"),
        ("LuongNMT", {"window": 0}, "window must be at least 1; got 0"),
        ("LuongNMT", {"score": "location", "max_source_length": -1}, "max_length must be at least 1; got -1"),
        (
            "LuongNMT",
            {"score": "location", "attention": "local_p"},
            "score 'location' works only with attention 'global'",
        ),
        ("BahdanauNMT", {"decoder": "lstm"}, "decoder must be one of 'gru', 'conditional_gru'; got 'lstm'"),
        ("TransformerNMT", {"norm": "none"}, "norm must be one of 'post', 'pre'; got 'none'"),
        ("TransformerNMT", {"num_heads": 3}, "num_heads must divide model_size (8); got 3"),
        ("TransformerNMT", {"decoder_layers": 0}, "decoder_layers must be at least 1; got 0"),
        ("TransformerNMT", {"encoder_layers": -1}, "encoder_layers must be at least 1; got -1"),
        ("TransformerNMT", {"attention_dropout": 1.0}, "dropout must be in [0, 1); got 1.0"),
        ("KeyValueNMT", {"encoder_layers": 0}, "encoder_layers must be at least 1; got 0"),
        ("TransformerNMT", {"shown_layer": 1}, "shown_layer must be in [-1, 1); got 1"),
        ("TransformerNMT", {"shown_head": 2}, "shown_head must be in [0, 2) or None; got 2"),
        ("KeyValueNMT", {"split": "zero"}, "split must be one of 'key_value', 'partly_zero'; got 'zero'"),
        ("TransformerNMT", {"key_size": 0}, "key_size must be at least 1; got 0"),
        ("TutorialAttentionNMT", {"attention": "dot"}, "attention must be one of 'location', 'none'; got 'dot'"),
        ("Seq2SeqNMT", {"variant": "chou"}, "variant must be one of 'sutskever', 'cho'; got 'chou'"),
    ],
)
def test_bad_choices(name, options, message):
    cls = next(c for c in CLASSES if c.__name__ == name)
    with pytest.raises(ValueError, match=re.escape(message)):
        cls(**{**cls.tiny, **options})
