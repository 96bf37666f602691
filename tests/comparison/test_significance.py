"""BLEU from counts, and the bootstrap over sentences and seeds: against sacrebleu, naive loops and known truth."""

import math
import random

import numpy as np
import pytest
from naive_bootstrap import moves
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest
from scipy.stats import t as student

from zoo.comparison.bleu import Tokens, corpus_bleu, sentence_counts
from zoo.comparison.significance import STUDENT, Bootstrap, bootstrap, deviations, half_interval
from zoo.metrics.corpus import CorpusScore, bleu_text

WORDS = "the a dog cat man red blue runs sits over on in snow street".split()


def sentences(count, seed):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 14))) for _ in range(count)]


def spoilt(texts, share, seed):
    """The texts, with that share of the words replaced."""
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) if rng.random() < share else word for word in text.split()) for text in texts]


def sacrebleu(translations, references):
    return BLEU(tokenize="none", force=True).corpus_score(translations, [references]).score


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_bleu_is_that_of_sacrebleu(share):
    references = sentences(40, 1)
    translations = spoilt(references, share, 2)
    found = corpus_bleu(sentence_counts(translations, references).sum(0))
    assert found == pytest.approx(sacrebleu(translations, references), abs=1e-9)


@pytest.mark.parametrize(
    ("translation", "reference"),
    [
        ("a b c d e", "a b c d e f"),  # too short
        ("a b x d y f", "a b c d e f"),  # one pair, no longer n-gram: smoothed
        ("a x c y e", "a b c d e"),  # single words only
        ("x y z v w", "a b c d e"),  # nothing
        ("a b c", "a b c d"),  # no n-gram of length 4 at all
        ("", "a b"),
        ("a a a a a", "a b c d a"),  # clipped
    ],
)
def test_bleu_of_odd_sentences(translation, reference):
    found = corpus_bleu(sentence_counts([translation], [reference]).sum(0))
    assert found == pytest.approx(sacrebleu([translation], [reference]), abs=1e-9)


def test_bleu_of_many_sums_at_once():
    references = sentences(6, 3)
    counts = sentence_counts(spoilt(references, 0.4, 4), references)
    sums = np.stack([counts[:2].sum(0), counts[2:].sum(0), np.zeros(10)]).reshape(3, 1, 10)
    assert corpus_bleu(sums).shape == (3, 1)
    assert corpus_bleu(sums)[:, 0].tolist() == [corpus_bleu(row[0]) for row in sums]


def test_texts_are_split_once(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "zoo.comparison.bleu.bleu_text", lambda texts, lang: calls.extend(texts) or bleu_text(texts, lang)
    )
    tokens = Tokens("de", tokenized=False)
    assert tokens(["Ein Hund.", "Zwei!", "Ein Hund."]) == ["ein hund .", "zwei !", "ein hund ."]
    tokens(["Zwei!"])
    assert calls == ["Ein Hund.", "Zwei!"] and Tokens("de", tokenized=True)(["Ein Hund."]) == ["Ein Hund."]


@pytest.mark.parametrize("lang", ["ja", "zho", "th", "de", "fr"])
def test_bleu_is_that_of_the_metric_in_every_language(lang):
    """Texts of some languages are written without spaces: their BLEU is of characters, not of one word a sentence."""
    references = ["二匹の犬が遊ぶ。", "A man reads 本を 読む", "Ein Hund läuft, c'est tout."]
    found = ["二匹の猫が遊ぶ。", "A Man  reads 本 読む", "Ein Hund schläft, c'est ça."]
    metric, tokens = CorpusScore(lang), Tokens(lang, tokenized=False)
    metric.update(found, references)
    counts = sentence_counts(tokens(found), tokens(references))
    assert corpus_bleu(counts.sum(0)) == pytest.approx(metric.compute()["bleu"], abs=1e-9)


def test_interval_of_seeds():
    assert half_interval([30.0]) is None
    assert half_interval([30.0, 31.0, 32.0]) == pytest.approx(student.ppf(0.975, 2) / math.sqrt(3), rel=1e-3)
    assert [student.ppf(0.975, n) for n in range(1, 31)] == pytest.approx(STUDENT, rel=1e-3)
    assert half_interval([0.0, 1.0] * 100) > 0, "more seeds than the table has"


def test_samples_are_those_of_a_naive_loop():
    """Sentences and seeds drawn with the same numbers, everything else by sacrebleu and loops."""
    references = sentences(15, 5)
    outputs = {
        "one": [spoilt(references, share, n) for n, share in enumerate((0.1, 0.6))],
        "two": [spoilt(references, 0.5, 7)],
    }
    counts = {name: [sentence_counts(run, references) for run in runs] for name, runs in outputs.items()}
    found = bootstrap(counts, corpus_bleu, samples=8, seed=3)

    rng = np.random.default_rng(3)
    times = rng.multinomial(15, np.full(15, 1 / 15), 8)
    drawn = [[n for n in range(15) for _ in range(times[b, n])] for b in range(8)]
    score = lambda run, rows: sacrebleu([run[n] for n in rows], [references[n] for n in rows])  # noqa: E731
    whole = {name: [score(run, range(15)) for run in runs] for name, runs in outputs.items()}
    samples = {name: [[score(run, rows) for run in runs] for rows in drawn] for name, runs in outputs.items()}
    moved = moves(rng, whole, samples)
    assert any(moved["two"]), "seeds differ by more than the chance of the sentences"
    for m, name in enumerate(outputs):
        expected = [sum(row) / len(row) + move for row, move in zip(samples[name], moved[name])]
        assert found.samples[:, m].tolist() == pytest.approx(expected, abs=1e-9)
    assert found.means.tolist() == pytest.approx([sum(scores) / len(scores) for scores in whole.values()], abs=1e-9)


def test_one_seed_agrees_with_sacrebleu():
    """Its paired bootstrap draws other samples: all agrees up to the error of 1,000 samples."""
    references = sentences(200, 8)
    outputs = {
        "base": spoilt(references, 0.3, 9),
        "near": spoilt(references, 0.31, 10),
        "far": spoilt(references, 0.4, 11),
    }
    metric = BLEU(tokenize="none", force=True, references=[references])
    _, theirs = PairedTest([*outputs.items()], {"BLEU": metric}, None, test_type="bs", n_samples=1000)()
    counts = {name: [sentence_counts(run, references)] for name, run in outputs.items()}
    found = bootstrap(counts, corpus_bleu, samples=1000)
    for place, name in enumerate(outputs):
        score = theirs["BLEU"][place]
        assert found.means[place] == pytest.approx(score.score, abs=1e-6)
        low, high = np.quantile(found.samples[:, place], [0.025, 0.975])
        assert (high - low) / 2 == pytest.approx(score.ci, rel=0.15)
        if name != "base":
            drawn = np.abs(found.samples[:, place] - found.samples[:, 0])
            real = abs(found.means[place] - found.means[0])
            one_sided = (np.sum(drawn - drawn.mean() > real) + 1) / 1001  # what it calls p
            assert one_sided == pytest.approx(score.p_value, abs=0.05)
    assert found.p_value("base", "far") < 0.01 < 0.05 < found.p_value("base", "near"), "the cases differ"


def test_pairs_and_ranks_by_hand():
    samples = np.array([[3.0, 1.0, 2.0], [3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [3.0, 1.0, 2.0]])
    found = Bootstrap(["a", "b", "c"], np.array([2.5, 1.5, 2.0]), samples, samples.mean(0))
    assert found.ranks().tolist() == [[0.75, 0.0, 0.25], [0.0, 0.5, 0.5], [0.25, 0.5, 0.25]]
    assert found.difference("a", "b")[0] == 1.0 and found.difference("b", "a")[0] == -1.0
    # differences 2, 1, -1, 2 are 1, 0, -2, 1 from their mean: three are at least as large as 1
    assert found.p_value("a", "b") == found.p_value("b", "a") == 4 / 5


def test_correction_for_the_number_of_pairs(monkeypatch):
    values = {("a", "b"): 0.01, ("a", "c"): 0.04, ("b", "c"): 0.03}
    monkeypatch.setattr(Bootstrap, "p_value", lambda self, first, second, apart: values[first, second])
    found = Bootstrap(["a", "b", "c"], np.zeros(3), np.zeros((1, 3)), np.zeros(3)).corrected()
    # the smallest times 3, the next one times 2, and none is below an earlier one
    assert found == pytest.approx({("a", "b"): 0.03, ("b", "c"): 0.06, ("a", "c"): 0.06})


def test_p_of_the_variance_of_each_mechanism_alone():
    """Against Student's t in closed form: all units alike, so that only the seeds differ, and only those of one."""

    def counts(score):
        return np.tile([score, 100.0], (50, 1))

    scores = {"steady": [60.0] * 3, "other": [61.0] * 3, "wild": [62.0, 66.0, 70.0]}
    runs = {name: [counts(score) for score in own] for name, own in scores.items()}
    found = bootstrap(runs, lambda sums: 100 * sums[..., 0] / sums[..., 1], samples=40_000)
    for name, difference in (("steady", 6.0), ("other", 5.0)):
        expected = 2 * student.sf(difference / (4 / math.sqrt(3)), 2)
        assert (
            found.p_value("wild", name, apart=True)
            == found.p_value(name, "wild", apart=True)
            == pytest.approx(expected, abs=0.01)
        )
    assert found.p_value("steady", "other", apart=True) < 0.001 < 0.3 < found.p_value("steady", "other"), (
        "wild seeds are not theirs"
    )
    assert found.corrected(apart=True)["steady", "wild"] == pytest.approx(
        2 * found.p_value("steady", "wild", apart=True)
    )
    assert bootstrap({name: own[:1] for name, own in runs.items()}, lambda sums: sums[..., 0]).apart is None


def test_seeds_that_happen_to_be_alike_are_not_without_variance():
    """Three seeds each, alike by chance, of texts that are drawn: their own variance is unknown, not zero."""
    rng = np.random.default_rng(0)

    def counts(right):
        hits = np.zeros(300)
        hits[rng.permutation(300)[:right]] = 1
        return np.stack([hits, np.full(300, 100.0)], axis=1)

    # variance 4 between the seeds, of which the drawn texts explain 5.3
    runs = {name: [counts(right + more) for more in (-6, 0, 6)] for name, right in (("a", 240), ("b", 243))}
    found = bootstrap(runs, lambda sums: 100 * 100 * sums[..., 0] / sums[..., 1])
    alone = math.sqrt(0.8 * 0.2 / 300 / 3) * 100  # of the mean of three seeds, by the drawn texts alone
    assert all(samples.std() > 1.2 * alone for samples in found.apart.T)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("values", "near"),
    [
        ({("a", "b"): 0.016, ("a", "c"): 0.001, ("b", "c"): 0.9}, 0),  # corrected 0.032
        ({("a", "b"): 0.024, ("a", "c"): 0.001, ("b", "c"): 0.052}, 2),  # 0.048, 0.052
        ({("a", "b"): 0.03, ("a", "c"): 0.017, ("b", "c"): 0.9}, 1),  # 0.06, 0.051
    ],
)
def test_pairs_that_other_samples_could_decide_otherwise(values, near, apart, monkeypatch):
    def p_value(self, first, second, of=False):
        return values[first, second] if of == apart else 0.5

    monkeypatch.setattr(Bootstrap, "p_value", p_value)
    found = Bootstrap(["a", "b", "c"], np.zeros(3), np.zeros((10_000, 1)), np.zeros(3))
    assert found.near(apart=apart) == near and found.near(apart=not apart) == 0


def test_deviations_of_few_seeds_are_stretched():
    assert deviations([np.array([30.0]), np.array([20.0])], [np.zeros((5, 1))] * 2).tolist() == [0.0]
    rng = np.random.default_rng(0)
    drawn = [rng.normal(mean, 0.7, 3) for mean in rng.uniform(10, 40, 2000)]
    found = deviations(drawn, [np.repeat(own[None], 4, 0) for own in drawn])  # all samples alike: no chance of units
    assert np.sqrt((found**2).mean()) == pytest.approx(0.7, rel=0.03)


def study(rng, quality, seeds=3, count=60, spread=0.12):
    """Counts of systems of a known quality: each seed is a little better or worse, sentences are hard or easy."""
    hard = rng.normal(0, 0.6, count)
    totals = np.tile([9, 8, 7, 6], (count, 1))
    found = {}
    for name, mean in quality.items():
        runs = []
        for _ in range(seeds):
            logits = mean + rng.normal(0, spread) + hard[:, None] - 0.4 * np.arange(4)
            matches = rng.binomial(totals, 1 / (1 + np.exp(-logits)))
            lengths = np.full((count, 2), 9)
            runs.append(np.concatenate([lengths, matches, totals], axis=1).astype(float))
        found[name] = runs
    return found


def test_equal_mechanisms_are_rarely_called_different():
    """With equal quality p < 0.05 has to come up about once in twenty, though seeds differ; with one seed drawn only
    from sentences it would come up far more often.
    """
    rng = np.random.default_rng(1)
    names = "abcdefgh"
    sure, blind = [], []
    for n in range(40):
        counts = study(rng, dict.fromkeys(names, 0.5))
        found = bootstrap(counts, corpus_bleu, samples=200, seed=n)
        single = bootstrap({name: runs[:1] for name, runs in counts.items()}, corpus_bleu, samples=200, seed=n)
        for first, second in zip(names[::2], names[1::2]):
            sure.append(found.p_value(first, second) < 0.05)
            blind.append(single.p_value(first, second) < 0.05)
    assert 0.01 <= np.mean(sure) <= 0.10 and np.mean(blind) > 0.15


def test_intervals_hold_the_truth():
    rng = np.random.default_rng(2)
    quality = {"a": 0.8, "b": 0.5, "c": 0.5, "d": 0.4, "e": 0.6}
    truth = {
        name: np.mean([corpus_bleu(run.sum(0)) for run in runs]) for name, runs in study(rng, quality, 60, 600).items()
    }
    held = []
    for n in range(60):
        found = bootstrap(study(rng, quality), corpus_bleu, samples=200, seed=n)
        for first, second in (("a", "b"), ("c", "d"), ("e", "a")):
            _, low, high = found.difference(first, second)
            held.append(low <= truth[first] - truth[second] <= high)
    assert 0.89 <= np.mean(held) <= 0.99


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_equal_classifiers_seldom_look_different(spread):
    """Three seeds each: p < 0.05 for about 5 % of the pairs, whether seeds differ or not."""
    rng, found = np.random.default_rng(1), []
    for repetition in range(25):
        ease = rng.normal(1.9, 1.5, 400)
        right = 1 / (1 + np.exp(-(ease + rng.normal(0, spread, (8, 3, 1))))) > rng.random((8, 3, 400))
        counts = {str(m): [run[:, None].astype(float) for run in runs] for m, runs in enumerate(right)}
        drawn = bootstrap(counts, lambda total: total[..., 0] / 4, samples=200, seed=repetition)
        found += [drawn.p_value(str(a), str(b)) < 0.05 for a in range(8) for b in range(a)]
    assert 0.025 < np.mean(found) < 0.085


def answers(rng, seeds, spread, count=200):
    """Counts of equal classifiers, right or wrong on texts that are easy or hard: mechanism -> one array per seed."""
    ease, found = rng.normal(1.2, 1.2, count), {}
    for name, runs in seeds.items():
        right = 1 / (1 + np.exp(-(ease + rng.normal(0, spread, (runs, 1))))) > rng.random((runs, count))
        found[name] = [run[:, None].astype(float) for run in right]
    return found


def accuracy(total):
    return total[..., 0] / 2


@pytest.mark.parametrize("seeds", [{"a": 2, "b": 1}, {"a": 1, "b": 3, "c": 2}])
@pytest.mark.parametrize("apart", [False, True])
def test_p_of_few_seeds_depends_neither_on_the_draws_nor_on_the_order(seeds, apart):
    """Two seeds tell little of a variance: some draws of it are far off, and must not decide."""
    counts = answers(np.random.default_rng(2), seeds, spread=0.6)
    drawn = [bootstrap(counts, accuracy, samples=2000, seed=n).p_value("a", "b", apart) for n in range(12)]
    p = np.mean(drawn)
    assert np.std(drawn) < 2 * math.sqrt(p * (1 - p) / 2000)
    backwards = bootstrap(dict(reversed(counts.items())), accuracy, samples=2000)
    assert backwards.names == list(seeds)[::-1] and backwards.p_value("a", "b", apart) == drawn[0]
    assert backwards.samples.mean() == pytest.approx(bootstrap(counts, accuracy, samples=2000).samples.mean())
