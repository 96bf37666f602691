"""What each task's decisions compute: the same as the model itself, with words erased, weights given, or embeddings moved."""

import math
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from model_cases import build
from PIL import Image
from scipy.stats import kendalltau

import zoo
from zoo.explanations import captioners, classifiers, measure, translators
from zoo.explanations.counterfactual import permutation_change
from zoo.explanations.erasure import SHARES, random_orders
from zoo.explanations.flow import flow
from zoo.explanations.given import attention_layers, given_attention
from zoo.explanations.measure import decisions
from zoo.layers.attention import GlobalAttention, make_attention
from zoo.layers.masking import lengths_to_mask
from zoo.layers.packed import to_padded
from zoo.layers.search import SearchResult
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.bahdanau import BahdanauNMT
from zoo.models.han import HAN
from zoo.models.key_value_nmt import KeyValueNMT
from zoo.models.lstmn import LSTMNLM
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.models.transformer import TransformerNMT
from zoo.models.tutorial_attention import TutorialAttentionNMT
from zoo.tasks.classification import TextClassifier
from zoo.tasks.evaluation import without_dropout
from zoo.tasks.hard_attention import for_each
from zoo.text import BOS, EOS, Tokenizer

IDS = [[5, 6, 7, 4, 9], [8, 5, 10]]
TEXT, DOCUMENT = classifiers.TextDecision, classifiers.DocumentDecision
CLASSIFIERS = [
    (TEXT, AttentionClassifier, {}, IDS[:1]),
    (TEXT, AttentionClassifier, {"attention": "local_p"}, IDS[:1]),
    (TEXT, StructuredSelfAttention, {"multi_label": True}, IDS[:1]),
    (TEXT, StructuredSelfAttention, {"pair": True}, IDS),
    (DOCUMENT, HAN, {}, IDS),
]
TRANSLATORS = [
    (LuongNMT, {}),
    (LuongNMT, {"input_feeding": False}),
    (BahdanauNMT, {}),
    (KeyValueNMT, {"decoder": "conditional_gru"}),
    (TutorialAttentionNMT, {}),
    (TransformerNMT, {"decoder_layers": 2, "shown_layer": 0}),
]
SOURCE, TARGET = [5, 6, 7, 9, 8], [4, 7, 5]


def _loud(cls, **options):
    """A model whose weights are large enough that each word matters."""
    torch.manual_seed(0)
    model = build(cls, **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)
    return without_dropout(model)


@pytest.fixture(params=range(len(CLASSIFIERS)), ids=lambda n: f"{CLASSIFIERS[n][1].__name__} {CLASSIFIERS[n][2]}")
def classified(request, float64):
    kind, cls, options, ids = CLASSIFIERS[request.param]
    model = _loud(cls, **options)
    return model, ids, kind(model, ids)


@pytest.fixture(params=range(len(TRANSLATORS)), ids=lambda n: f"{TRANSLATORS[n][0].__name__} {TRANSLATORS[n][1]}")
def translated(request, float64):
    cls, options = TRANSLATORS[request.param]
    model = _loud(cls, **options)
    return model, translators.TokenDecision(model, SOURCE, TARGET)


@pytest.fixture
def captioned(float64):
    model = _loud(ShowAttendTell)
    pixels = torch.randint(0, 256, (3, 6, 6), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    with torch.no_grad():
        features = model.features(pixels.unsqueeze(0))
    return model, pixels, captioners.WordDecision(model, pixels, features, TARGET)


def _same_with_own_weights(decision):
    whole = decision.output(torch.ones(1, decision.size, dtype=torch.bool))
    given = decision.attend(decision.weights.detach().expand(2, -1))
    torch.testing.assert_close(given, whole.expand(2, -1), rtol=1e-6, atol=1e-9)
    other = decision.weights.detach().roll(1).unsqueeze(0)
    assert not torch.allclose(decision.attend(other), whole, atol=1e-6)
    assert decision.show(decision.weights.unsqueeze(0)).sum().item() == pytest.approx(1)


def _lost(decision, order):
    """Comprehensiveness and sufficiency of an order of the words, one share after the other."""
    whole, *lost = decision.probability(torch.ones(1, decision.size, dtype=torch.bool)), [], []
    for share in SHARES:
        first = torch.zeros(1, decision.size, dtype=torch.bool)
        first[0, order[: math.ceil(share * decision.size)]] = True
        for losses, kept in zip(lost, (~first, first), strict=True):
            losses.append(float(whole - decision.probability(kept)))
    return [sum(losses) / len(SHARES) for losses in lost]


# ---- all measures ----


def test_each_measure_has_its_name(classified, monkeypatch):
    """The same random choices, and everything else by loops and scipy."""
    _, _, decision = classified
    monkeypatch.setattr(measure, "adversary", lambda *_: (0.4, None))  # is slow, and has tests of its own
    found = measure.measured(decision, torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(5)
    attention, (gradient, product) = decision.attention().detach(), decision.gradients()
    own = {"attention": attention, "gradient": gradient, "gradient x input": product}
    orders = {name: [numbers.argsort(descending=True).tolist()] for name, numbers in own.items()}
    orders["random"] = random_orders(decision.size, generator).tolist()
    for name, several in orders.items():
        comprehensiveness, sufficiency = np.mean([_lost(decision, order) for order in several], axis=0)
        assert found[f"comprehensiveness, {name}"] == pytest.approx(comprehensiveness, abs=1e-9)
        assert found[f"sufficiency, {name}"] == pytest.approx(sufficiency, abs=1e-9)
    assert len({round(found[f"{what}, attention"], 6) for what in ("comprehensiveness", "sufficiency")}) == 2
    advantage = found["comprehensiveness, attention"] - found["comprehensiveness, random"]
    assert found["advantage"] == pytest.approx(advantage) and advantage != 0
    without = decision.left_out(torch.arange(decision.size))
    for name, other in (("gradient", gradient), ("gradient x input", product), ("leaving out", without)):
        assert found[f"tau, {name}"] == pytest.approx(kendalltau(attention, other.detach()).statistic)
    torch.randperm(decision.size, generator=generator)  # the words that are left out
    weights = decision.attend, decision.weights.detach(), decision.groups
    wanted = permutation_change(*weights, decision.distance, 50, generator)
    assert found["permutation"] == wanted
    assert (found["adversary"], found["adversary, above"]) == (0.4, 1.0)


def test_figures_are_means_over_inputs_of_the_means_over_their_answers(monkeypatch):
    """An input with many answers counts as much as one with a single one; what has no value is left out."""
    names = [f"comprehensiveness, {order}" for order in ("gradient", "gradient x input", "random")]
    shared = dict.fromkeys(names, 0.0) | {names[0]: 0.2}

    def answer(advantage, tau):
        return shared | {"advantage": advantage, "tau, gradient": tau}

    answers = {"one": [answer(0.1, math.nan)], "none": [], "two": [answer(0.5, math.nan), answer(0.7, 0.4)]}
    monkeypatch.setattr(measure, "check_model", lambda model: None)
    monkeypatch.setattr(measure, "decisions", lambda model, source, generator: answers[source])
    monkeypatch.setattr(measure, "measured", lambda decision, generator: decision)
    model = SimpleNamespace(task=SimpleNamespace(name="classification"))
    found = measure.faithfulness(model, answers, "tiny")
    assert (found.drawn, found.inputs, found.decisions) == (3, 2, 3)
    means = {name: (figure.mean, figure.inputs) for name, figure in found.figures.items()}
    assert means["advantage"] == (pytest.approx((0.1 + 0.6) / 2), 2) and means["tau, gradient"] == (0.4, 1)
    assert means["margin"] == (pytest.approx((0.1 + 0.6) / 2 - 0.5 * 0.2), 2)


# ---- classifiers ----


def _probabilities(model, ids):
    logits, _ = model(model.collate([ids]))
    return (logits.sigmoid() if model.config["multi_label"] else logits.softmax(-1))[0]


def test_gradients_of_an_answer_that_is_almost_certain():
    """Its probability is 1 in float32, and the gradient of that would be rounding alone."""
    torch.manual_seed(0)
    model = build(AttentionClassifier).eval()
    with torch.no_grad():
        model.classifier.bias[2] += 25
    decision = TEXT(without_dropout(model), IDS[:1])
    assert decision.answer == 2 and decision.probability(torch.ones(1, 5, dtype=torch.bool)).item() == 1
    wide = TEXT(without_dropout(deepcopy(model).double()), IDS[:1])
    for found, wanted in zip(decision.gradients(), wide.gradients(), strict=True):
        assert 0 < wanted.max() < 1e-9
        torch.testing.assert_close(found.double() / wanted.max(), wanted / wanted.max(), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_an_erased_word_is_left_out(classified):
    model, ids, decision = classified
    kept = torch.ones(3, decision.size, dtype=torch.bool)
    kept[1, 1] = kept[2, 4] = False
    shorter = [[5, 7, 4, 9], *ids[1:]], [[5, 6, 7, 4], *ids[1:]]
    wanted = torch.stack([_probabilities(model, one) for one in (ids, *shorter)])
    torch.testing.assert_close(decision.output(kept), wanted, check_dtype=False, rtol=1e-5, atol=1e-6)
    assert decision.answer == wanted[0].argmax()
    assert torch.equal(decision.probability(kept), decision.output(kept)[:, decision.answer])
    distance = (wanted[0] - wanted[1]).abs()
    moved = distance.max() if model.config["multi_label"] else distance.sum() / 2
    assert decision.left_out(torch.tensor([1])).item() == pytest.approx(moved.item(), rel=1e-4)


def test_weights_can_be_given(classified):
    _same_with_own_weights(classified[2])


def test_what_is_shown_of_the_weights(classified):
    model, ids, decision = classified
    _, attention = model(model.collate([ids]))
    if isinstance(model, HAN):
        words, sentences = attention
        wanted = words * torch.repeat_interleave(sentences, torch.tensor([5, 3]))
    else:
        wanted = torch.cat([part[0].mean(0) for part in attention])
        wanted = wanted / wanted.sum()
    torch.testing.assert_close(decision.attention(), wanted)


def test_gradients_of_classifiers(classified):
    model, ids, decision = classified
    norms, products = decision.gradients()
    tokens = torch.tensor([word for part in ids for word in part])
    embedded = model.embedding(tokens).detach()

    def probability(values):
        parts = iter(values.split([len(part) for part in ids] if model.config.get("pair") else [len(tokens)]))
        model.embed_words = lambda words: (next(parts), torch.arange(len(words)))
        try:
            return _probabilities(model, ids)[decision.answer]
        finally:
            del model.embed_words

    _compare(probability, embedded, norms, products)


def _compare(probability, embedded, norms, products):
    """The derivative in each direction, by differences."""
    step = 1e-6
    for word in (0, 3):
        gradient = torch.zeros(embedded.size(-1))
        for column in range(embedded.size(-1)):
            moved = embedded.clone()
            moved[word, column] += step
            up = probability(moved)
            moved[word, column] -= 2 * step
            gradient[column] = (up - probability(moved)).detach() / (2 * step)
        assert norms[word].item() == pytest.approx(gradient.norm().item(), rel=1e-3, abs=1e-9)
        assert products[word].item() == pytest.approx(abs(float(gradient @ embedded[word])), rel=1e-3, abs=1e-9)
    assert norms.max() > 1e-6


# ---- translators ----


@torch.no_grad()
def test_an_erased_source_token_is_left_out(translated):
    model, decision = translated
    kept = torch.ones(2, len(SOURCE), dtype=torch.bool)
    kept[1, [0, 3]] = False
    wanted = []
    for source in (SOURCE, [6, 7, 8]):
        src = torch.tensor([[*source, 3]])
        logits, _ = model(src, torch.tensor([src.size(1)]), torch.tensor([[2, 4, 7]]))
        wanted.append(logits[0, -1].softmax(-1))
    torch.testing.assert_close(decision.output(kept), torch.stack(wanted), rtol=1e-6, atol=1e-9)
    assert decision.answer == 5


def test_weights_of_one_step_can_be_given(translated):
    _same_with_own_weights(translated[1])


@torch.no_grad()
def test_the_weights_are_those_of_the_results(translated):
    model, decision = translated
    _, weights = model(torch.tensor([[*SOURCE, 3]]), torch.tensor([6]), torch.tensor([[2, 4, 7]]))
    row = weights[0, -1]
    torch.testing.assert_close(decision.show(decision.weights.unsqueeze(0))[0], row / row.sum())


def test_other_weights_act_at_the_last_step_alone(translated):
    """As the whole decoder says whose last row of weights is replaced, for all variants, with gradients."""
    model, decision = translated
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(3, len(decision.weights), generator=generator).requires_grad_()
    inputs = torch.tensor([[*SOURCE, 3]]), torch.tensor([6]), torch.tensor([[2, 4, 7]])
    layer = translators.shown_layers(model)[0]
    own = []  # decoders ask for all steps at once, or for one after the other
    watch = layer.register_forward_hook(lambda layer, inputs, found: own.append(found[1]))
    model(*inputs)
    watch.remove()
    assert sum(part.size(-2) for part in own) == len(TARGET)

    def whole(one):
        last = torch.cat([own[-1][..., :-1, :], one.reshape(own[-1][..., -1:, :].shape)], dim=-2)
        calls = iter([*own[:-1], last])
        with given_attention([layer], lambda: next(calls)):
            logits, _ = model(*inputs)
        return logits[0, -1].softmax(-1)

    found, wanted = decision.attend(weights), torch.stack([whole(one) for one in weights])
    assert (wanted[0] - wanted[1]).abs().max() > 1e-3, "the weights do not matter"
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)
    ours, naive = (torch.autograd.grad(output[:, 4].sum(), weights)[0] for output in (found, wanted))
    torch.testing.assert_close(ours, naive, rtol=1e-6, atol=1e-9)


def test_gradients_of_translators(translated):
    model, decision = translated
    src = torch.tensor([[*SOURCE, 3]])
    embedded = model.embeddings.src(src)[0].detach()

    def probability(values):
        model.embeddings.src = lambda ids: values.unsqueeze(0)
        try:
            logits, _ = model(src, torch.tensor([6]), torch.tensor([[2, 4, 7]]))
        finally:
            del model.embeddings.src
        return logits[0, -1].softmax(-1)[decision.answer]

    norms, products = decision.gradients()
    _compare(probability, embedded, norms / model.embeddings.scale, products)  # ours are before the scale


def test_the_transformer_also_has_rollout_and_flow(float64):
    """What the reader of the last layer gets from each word of the input, through both layers."""
    model = _loud(TransformerNMT, encoder_layers=2)
    decision = translators.TokenDecision(model, SOURCE, TARGET)
    found = decision.more()
    with torch.no_grad():
        maps = model.attention_maps(torch.tensor([[*SOURCE, 3]]), torch.tensor([6]), torch.tensor([[2, 4, 7]])).encoder
    lower, upper = ((layer[0].mean(0) + torch.eye(6)) / 2 for layer in maps)  # each from (heads, words, words)
    top = decision.show(decision.weights.unsqueeze(0))[0]
    orders = {"rollout": upper.T @ top, "flow": flow(maps[:, 0], top)}
    orders["rollout"] = lower.T @ orders["rollout"]
    assert found.keys() == {f"comprehensiveness, {name}" for name in orders}
    for name, importance in orders.items():
        order = importance[: decision.size].argsort(descending=True).tolist()
        assert found[f"comprehensiveness, {name}"] == pytest.approx(_lost(decision, order)[0])


# ---- captioners ----


@torch.no_grad()
def test_an_erased_region_is_grey(captioned):
    model, pixels, decision = captioned
    rows = round(decision.size**0.5)
    side = 6 // rows
    assert rows > 1
    kept = torch.ones(2, decision.size, dtype=torch.bool)
    kept[1, rows + 1] = False  # second row, second column
    grey = pixels.clone()
    mean = torch.tensor(model.transform.mean).mul(255).round().to(torch.uint8)
    grey[:, side : 2 * side, side : 2 * side] = mean.reshape(3, 1, 1)
    logits, _ = model(torch.stack([pixels, grey]), torch.tensor([2, 4, 7]).expand(2, 1, 3))
    torch.testing.assert_close(decision.output(kept), logits[:, 0, -1].softmax(-1), rtol=1e-6, atol=1e-9)


def test_weights_of_a_word_can_be_given(captioned):
    _same_with_own_weights(captioned[2])


def test_other_weights_act_at_the_last_word_alone(captioned):
    model, _, decision = captioned
    weights = torch.rand(3, decision.size, generator=torch.Generator().manual_seed(0))
    memory, state = model.encode(decision._features)
    embedded, wanted = model.embedding(torch.tensor([[2, 4, 7]])), []
    for one in weights:
        looks = iter([None, None, one.reshape(1, 1, -1)])
        found = model.steps(
            embedded.unsqueeze(1),
            memory,
            for_each(state, 1),
            lambda own: own if (given := next(looks)) is None else given,
        )
        last = model.read(found.hidden[:, 0, -1], found.context[:, 0, -1], embedded[:, -1])
        wanted.append(model.output(last)[0].softmax(-1))
    torch.testing.assert_close(decision.attend(weights), torch.stack(wanted), rtol=1e-6, atol=1e-9)


def test_each_variant_is_computed_once(classified, monkeypatch):
    _, _, decision = classified
    asked = []
    monkeypatch.setattr(decision, "output", lambda kept: (asked.extend(kept.tolist()), kept.double().cumsum(1))[1])
    without = ~torch.eye(decision.size, dtype=torch.bool)
    every = torch.cat([torch.ones(1, decision.size, dtype=torch.bool), without[[0, 1, 0]]])
    torch.testing.assert_close(decision.probability(every), every.double().cumsum(1)[:, decision.answer])
    decision.left_out(torch.tensor([2, 1]))
    torch.testing.assert_close(decision.outputs(without[[1, 2]]), without[[1, 2]].double().cumsum(1))
    assert len(asked) == len({tuple(row) for row in asked}) == 4


def test_gradients_of_captioners(captioned):
    model, _, decision = captioned
    features = decision._features[0].detach()

    def probability(values):
        logits, _ = model(values.unsqueeze(0), torch.tensor([[[2, 4, 7]]]))
        return logits[0, 0, -1].softmax(-1)[decision.answer]

    _compare(probability, features, *decision.gradients())


def test_one_grey_region(captioned):
    _, _, decision = captioned
    found = decision.more()
    kept = torch.ones(1, decision.size, dtype=torch.bool)
    whole = decision.probability(kept)
    kept[0, decision.attention().argmax()] = False
    assert found["one region, attention"] == pytest.approx((whole - decision.probability(kept)).item())
    without = decision.probability(~torch.eye(decision.size, dtype=torch.bool))
    assert without.std() > 0 and found["one region, random"] == pytest.approx((whole - without.mean()).item())


# ---- from raw input, and what cannot be done ----


def _reads_raw_input(cls, **options):
    model = _loud(cls, vocab_size=40, **options)
    model.tokenizer = Tokenizer.train(["A dog runs in the snow. It barks.", "Two men are playing."] * 2, "word_punct")
    model.label_names = ["a", "b", "c"]
    return model


def test_decisions_of_raw_inputs():
    model = _reads_raw_input(HAN)
    assert [decision.size for decision in classifiers.decisions(model, "A dog runs. It barks.")] == [7]
    assert [decision.size for decision in classifiers.decisions(model, "A dog")] == [2]
    assert not classifiers.decisions(model, "dog") and not classifiers.decisions(model, "")
    pairs = _reads_raw_input(StructuredSelfAttention, pair=True)
    assert [decision.size for decision in classifiers.decisions(pairs, ("A dog", "runs"))] == [3]
    assert not classifiers.decisions(pairs, ("A dog", ""))
    texts = tuple(np.array(["A dog", "runs"]))  # strings of NumPy are strings, too
    assert [decision.size for decision in decisions(pairs, texts, torch.Generator())] == [3]


def test_the_end_of_a_caption_is_not_explained(monkeypatch):
    model = build(ShowAttendTell)
    tokens, image = torch.tensor([[[4, 7, EOS]]]), Image.new("RGB", (9, 9), "red")
    result = SearchResult(tokens, torch.tensor([[3]]), torch.zeros(1, 1), torch.zeros(1, 1), None)
    monkeypatch.setattr(model, "_search", lambda features, beam_size: result)
    found = [captioners.decisions(model, image, torch.Generator().manual_seed(seed)) for seed in range(12)]
    assert {(*one._read.tolist(), one.answer) for (one,) in found} == {(BOS, 4), (BOS, 4, 7)}


def test_sentences_are_translated_one_by_one():
    """As the verb does: other decisions about a text of two sentences would be of another translation."""
    model = zoo.load("luong_general.multi30k_en_de")
    text = "Two dogs play. A man is sleeping on a bench."
    found = [d for seed in range(8) for d in decisions(model, text, torch.Generator().manual_seed(seed))]
    sentences = [model.translate(sentence).tokens for sentence in ("Two dogs play.", "A man is sleeping on a bench.")]
    sources = {4: sentences[0], 8: sentences[1]}
    for decision in found:
        written = model.tokenizers[1].tokens([*decision._read[1:].tolist(), decision.answer])
        assert written == sources[decision.size][: len(written)] and decision.answer != EOS
    assert {decision.size for decision in found} == set(sources)
    quiet = decisions(model, "TWO DOGS PLAY.", torch.Generator().manual_seed(0))[0]  # read in lower case
    assert quiet.words == model.translate("TWO DOGS PLAY.").source_tokens
    with pytest.raises(ValueError, match="sentence 2 of the text has [0-9,]+ tokens; at most 1,000 are allowed"):
        decisions(model, "Two dogs play. " + "dog " * 1200 + ".", torch.Generator())


@pytest.mark.parametrize("name", ["structured_self_attention.sst2", "han.imdb"])
def test_a_model_in_double_precision(name):
    found, wide = (
        zoo.faithfulness(model, ["A wonderful film."]) for model in (zoo.load(name), zoo.load(name).double())
    )
    for what in ("comprehensiveness, attention", "tau, leaving out", "permutation"):
        assert wide.figures[what].mean == pytest.approx(found.figures[what].mean, abs=1e-3)


class Bag(TextClassifier):
    """A user's classifier without a recurrent encoder: attention over the embeddings."""

    tiny = dict(vocab_size=12, num_classes=3)

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        multi_label: bool = False,
        embedding_size: int = 6,
        word_dropout: float = 0.0,
        label_smoothing: float = 0.0,
    ):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocab_size, embedding_size)
        self.query = torch.nn.Parameter(torch.ones(embedding_size))
        self.attention = make_attention("global", embedding_size, embedding_size)
        self.classifier = torch.nn.Linear(embedding_size, num_classes)

    def read(self, batch):
        mask = lengths_to_mask(batch.lengths, batch.tokens.size(1))
        embedded, rows = self.embed_words(batch.tokens[mask])
        query = self.query.expand(len(mask), 1, -1)
        context, weights = self.attention(query, self.attention.project(to_padded(embedded[rows], mask), mask))
        return self.classifier(context[:, 0]), [weights]


def test_a_classifier_without_a_recurrent_encoder(float64):
    model = _loud(Bag)
    decision = TEXT(model, IDS[:1])
    assert torch.allclose(decision.attend(decision.weights.unsqueeze(0)), decision.output(torch.ones(1, 5).bool()))
    other = torch.tensor([[1.0, 0, 0, 0, 0]])
    assert not torch.allclose(decision.attend(other), decision.attend(decision.weights.unsqueeze(0)))


def test_the_attention_of_a_translation_is_that_of_its_decoder(float64, monkeypatch):
    """Also where the first attention layer is of a user's encoder."""
    model = _loud(LuongNMT)
    encode, others = model.encode, dict(model._modules)
    model._modules.clear()
    model.pool = pool = make_attention("global", model.config["hidden_size"], model.config["hidden_size"])
    model._modules.update(others)

    def attending(*inputs):
        memory, state = encode(*inputs)
        pool(memory.values[:, :1], pool.project(memory.values, memory.mask))
        return memory, state

    monkeypatch.setattr(model, "encode", attending)
    assert attention_layers(model) == [pool, model.attention]
    decision = translators.TokenDecision(model, SOURCE, TARGET)
    own = decision.attend(decision.weights.unsqueeze(0))
    assert torch.allclose(own, decision.output(torch.ones(1, len(SOURCE)).bool()))
    assert not torch.allclose(own, decision.attend(decision.weights.flip(0).unsqueeze(0)))


def test_a_layer_that_answers_otherwise():
    """Given weights would be those of another function."""

    class Gated(GlobalAttention):
        def forward(self, *inputs, **options):
            context, weights = super().forward(*inputs, **options)
            return 3 * torch.tanh(context), weights

    model = build(AttentionClassifier)
    model.attention = Gated(8, 8)
    with pytest.raises(ValueError, match="Gated has its own `forward`, so what it would answer with given weights"):
        attention_layers(model)


def test_a_model_without_attention_layers():
    with pytest.raises(ValueError, match="LSTMNLM has no attention layer whose weights can be replaced"):
        attention_layers(build(LSTMNLM))


def test_the_user_model_stays_as_it_is():
    model = build(AttentionClassifier, dropout=0.5).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    decision = classifiers.TextDecision(without_dropout(model), IDS[:1])
    decision.gradients()
    decision.attend(decision.weights.unsqueeze(0))
    assert model.training and "embed_words" not in vars(model)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_certificate_of_a_tiny_model():
    document_classifier = _reads_raw_input(HAN)
    texts = ["A dog runs.", ""]
    first = zoo.faithfulness(document_classifier, texts, "tiny")
    again = zoo.faithfulness(document_classifier, texts, "tiny")
    assert first.inputs == first.decisions == 1 and first.drawn == 2
    assert first.figures == again.figures
    divergence, above = first.figures["adversary"].mean, first.figures["adversary, above"].mean  # of one answer
    assert above == (divergence > math.log(2) / 2)
    other = zoo.faithfulness(document_classifier, texts, "tiny", seed=1)
    assert other.figures != first.figures
