"""Caption scores against pycocoevalcap and naive loops, tokens against those of its Java tokeniser, written out."""

import math
import random
import shutil
import sys
from itertools import combinations

import forks
import pytest
import torch.multiprocessing as mp
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from zoo.metrics import CaptionScores, CiderD, caption_tokens, meteor, right_words

NAMES = [f"bleu_{n}{end}" for end in ("", "_no_bp") for n in range(1, 5)] + ["cider_d", "rouge_l"]
CAPTIONS = ["A brown dog runs over the wet grass .", "Two girls don't smile", "a man", "", "A red (and white) T-shirt!"]
REFERENCES = [
    ["A dog runs across the grass.", "A brown dog is running over wet grass", "the dog runs"],
    ["Two girls aren't smiling .", "Girls who don't smile"],
    ["A man on a bench in the park ."],
    ["A train", "An old train at the station"],
    ["A shirt (red and white) on a line !", "Someone's red T-shirt"],
]


def corpus(seed, images=12, words=9):
    """Random sentences of few words, so that long n-grams are found again; captions and references as strings."""
    chance = random.Random(seed)

    def sentence(least, most):
        return " ".join(f"w{int(words * chance.random() ** 2)}" for _ in range(chance.randint(least, most)))

    captions = [sentence(1, 14) for _ in range(images)]
    return captions, [[sentence(1, 14) for _ in range(chance.randint(1, 6))] for _ in range(images)]


def scores_of(captions, references):
    metric = CaptionScores()
    metric.update(captions, references)
    return metric.compute()


def oracle(captions, references):
    """pycocoevalcap on the same words."""
    found = {n: [" ".join(caption_tokens(caption))] for n, caption in enumerate(captions)}
    truth = {n: [" ".join(caption_tokens(text)) for text in texts] for n, texts in enumerate(references)}
    scores = {f"bleu_{n}": score for n, score in enumerate(Bleu(4).compute_score(truth, found, verbose=0)[0], 1)}
    scores["cider_d"] = Cider().compute_score(truth, found)[0]
    scores["rouge_l"] = Rouge().compute_score(truth, found)[0]
    return {name: 100 * score for name, score in scores.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man doesn't like it and can't, won't, CANNOT.", "a man does n't like it and ca n't wo n't can not"),
        ("He's she's they're I've we'll I'd I'm", "he 's she 's they 're i 've we 'll i 'd i 'm"),
        ("o'clock ma'am O'Brien l'homme 'tis gonna", "o'clock ma'am o'brien l'homme 't is gon na"),
        ("He said \"hello\", then 'goodbye'.", "he said hello then goodbye"),
        ("“Curly quotes” and ‘single curly’ it’s don’t", "curly quotes and single curly it 's do n't"),
        ("a (red) [blue] {green} ball", "a -lrb- red -rrb- -lsb- blue -rsb- -lcb- green -rcb- ball"),
        ("black/white cats and/or 1/2 dogs", "black/white cats and/or 1/2 dogs"),
        ("$5 and 5% and #3 and 3.5 and 1,000, 3:30", "$ 5 and 5 % and # 3 and 3.5 and 1,000 3:30"),
        ("AT&T and R&amp;B & co. b & w, at&t", "at&t and r&b & co. b & w at & t"),
        ("Mr. Smith and Dr. Jones on Main St. in the U.S.", "mr. smith and dr. jones on main st. in the u.s."),
        ("at 10:30a.m. with a Ph.D. and the letter P.", "at 10:30 a.m. with a ph.d. and the letter p."),
        ("wait... what.. no.... yes… he sat.", "wait what no yes he sat"),
        ("a dog - a cat -- a bird --- a fish – en — em", "a dog a cat a bird a fish en em"),
        ("well-known state-of-the-art T-shirt, cut-outs", "well-known state-of-the-art t-shirt cut-outs"),
        ("see www.example.com or me@example.com", "see www.example.com or me@example.com"),
        ("café naïve Über 日本語 😀 ok", "café naïve über 日本語 ok"),
        ("! ? !!! ?! ok!", "!!! ?! ok"),
        ("The dogs' tails. James' hat", "the dogs tails james hat"),
        ("rock 'n' roll, '90s 1920's mid-1990's", "rock 'n' roll '90s 1920 's mid-1990 's"),
        ("5'10\" tall, 6ft 4x4 2nd", "5 10 tall 6ft 4x4 2nd"),
        ("dog,cat ;dog: cat .The end", "dog cat dog cat the end"),
        ("  one\ttwo\nthree\u00a0four ", "one two three four"),
        (" . , ; '' `` - -- ", ""),
        ("", ""),
    ],
)
def test_tokens_are_those_of_the_coco_evaluation(text, expected):
    assert caption_tokens(text) == expected.split()


@pytest.mark.parametrize("seed", range(20))
def test_scores_are_those_of_pycocoevalcap(seed):
    captions, references = corpus(seed)
    found, expected = scores_of(captions, references), oracle(captions, references)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12, abs=1e-10)
    assert list(found) == NAMES


def test_scores_of_real_sentences_are_those_of_pycocoevalcap():
    found, expected = scores_of(CAPTIONS, REFERENCES), oracle(CAPTIONS, REFERENCES)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12, abs=1e-10)
    assert 20 < found["bleu_1"] < found["bleu_1_no_bp"] < 100


def test_captions_of_three_words_have_the_bleu_4_of_pycocoevalcap():
    captions, references = ["a red dog", "two cats run"], [["a red dog runs"], ["two cats run home"]]
    found = scores_of(captions, references)
    assert (
        found["bleu_4"] == pytest.approx(oracle(captions, references)["bleu_4"], rel=1e-12) and 1 < found["bleu_4"] < 5
    )
    assert found["bleu_3_no_bp"] == pytest.approx(100)


def test_brevity_penalty_by_hand():
    # 5 of 5 words; the closest lengths are 3 (of 1 and 3: as far away, the shorter would be 1) and 6.
    found = scores_of(["a b", "c d e"], [["a b x", "a"], ["c d e f g h"]])
    assert found["bleu_1_no_bp"] == pytest.approx(100)
    assert found["bleu_1"] == pytest.approx(100 * math.exp(1 - 7 / 5))
    # precisions 2/3 and 1/1: the caption longer than its references has no penalty
    found = scores_of(["a b c"], [["a b"]])
    assert found["bleu_1"] == found["bleu_1_no_bp"] == pytest.approx(200 / 3)
    assert found["bleu_2"] == pytest.approx(100 * math.sqrt(2 / 3 * 1 / 2))


def test_a_word_counts_as_often_as_in_one_reference():
    assert scores_of(["the the the the"], [["the cat the", "the dog"]])["bleu_1"] == pytest.approx(50)


def test_rouge_by_hand():
    def common(a, b):
        subsequences = (c for size in range(len(a), -1, -1) for c in combinations(a, size))
        return next(len(c) for c in subsequences if any(c == d for d in combinations(b, len(c))))

    captions, references = corpus(3, images=5)
    captions, references = [c[:20] for c in captions], [[r[:20] for r in texts] for texts in references]
    expected = []
    for caption, texts in zip(captions, references):
        lengths = [common(caption.split(), text.split()) for text in texts]
        p = max(lengths) / len(caption.split())
        r = max(length / len(text.split()) for length, text in zip(lengths, texts))
        expected.append((1 + 1.2**2) * p * r / (r + 1.2**2 * p) if p else 0)
    assert scores_of(captions, references)["rouge_l"] == pytest.approx(100 * sum(expected) / len(expected))


def test_cider_d_by_hand():
    # Two images: "a" is in both (idf 0), all else in one (idf log 2). 1-grams: caption (a b), reference (a b b): cosine
    # with the smaller count = 1 * 2 / (1 * 2); 2-grams: "a b" of (a b, b b) = 1 / sqrt(2); one bigram less: exp(-1 /
    # 72).
    truth = [[["a", "b", "b"]], [["a", "c"]]]
    score, other = CiderD(truth).score([["a", "b"], ["b"]], truth)
    assert score == pytest.approx(10 / 4 * (1 + 1 / math.sqrt(2)) * math.exp(-1 / 72)) and other == 0


def test_cider_d_with_frequencies_of_other_captions():
    captions, references = corpus(1)
    candidates, references = (
        [text.split() for text in captions],
        [[text.split() for text in texts] for texts in references],
    )
    table = CiderD(references)
    alone = [table.score([tokens], [texts])[0] for tokens, texts in zip(candidates, references)]
    assert table.score(candidates, references) == alone
    assert CiderD(references[:6]).score(candidates, references) != alone
    found = {n: [" ".join(tokens)] for n, tokens in enumerate(candidates)}
    truth = {n: [" ".join(tokens) for tokens in texts] for n, texts in enumerate(references)}
    assert alone == pytest.approx(list(Cider().compute_score(truth, found)[1]), rel=1e-12)
    assert max(table.score([["unheard", "of"]], [[["unheard", "of"]]])) == pytest.approx(5)  # 1- and 2-grams only


def test_the_best_caption_is_a_reference():
    references = [["a red dog runs home"], ["two cats sleep on mats"], ["some people eat green apples"]]
    assert scores_of([texts[0] for texts in references], references) == pytest.approx(
        {name: 1000 if name == "cider_d" else 100 for name in NAMES}
    )


def test_empty_captions_score_zero():
    assert scores_of(["", " . "], [["a dog"], ["", "!"]]) == dict.fromkeys(NAMES, 0.0)
    with_empty = scores_of([*CAPTIONS, ""], [*REFERENCES, ["a dog"]])
    assert with_empty["rouge_l"] == pytest.approx(scores_of(CAPTIONS, REFERENCES)["rouge_l"] * 5 / 6)
    assert scores_of(["a dog"], [["."]]) == pytest.approx(dict.fromkeys(NAMES, 0.0), abs=1e-3)


def test_batches_and_reset():
    metric = CaptionScores()
    for n in (0, 2, 4):
        metric(CAPTIONS[n : n + 2], REFERENCES[n : n + 2])
    assert metric.compute() == scores_of(CAPTIONS, REFERENCES)
    metric.reset()
    metric.update(CAPTIONS[:1], REFERENCES[:1])
    assert metric.compute() == scores_of(CAPTIONS[:1], REFERENCES[:1])


def test_signatures_name_everything():
    signatures = CaptionScores().signatures
    assert list(signatures) == NAMES and len(set(signatures.values())) == len(NAMES)
    assert signatures["bleu_4"] == "tok:ptb-coco|case:lc|corpus|max_n:4|bp:closest|smooth:1e-15/1e-9|like:pycocoevalcap"
    assert "|bp:none|" in signatures["bleu_4_no_bp"] and "|sigma:6|df:references|" in signatures["cider_d"]


def _score_shard(rank, shards, store, results):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=len(shards))
    metric = CaptionScores()
    for n in shards[rank]:
        metric.update([CAPTIONS[n]], [REFERENCES[n]])
    results.put(metric.compute())
    dist.destroy_process_group()


def test_sharding_changes_nothing(tmp_path):
    forks.start()
    results = forks.CONTEXT.SimpleQueue()
    shards = [[4, 0, 3, 1, 2], []]  # the second process has nothing to score
    mp.start_processes(_score_shard, (shards, tmp_path / "store", results), nprocs=2, start_method="forkserver")
    assert [results.get() for _ in shards] == [scores_of(CAPTIONS, REFERENCES)] * 2


@pytest.mark.parametrize("score", [CaptionScores().update, CiderD([[["a"]]]).score, meteor])
def test_wrong_use(score):
    with pytest.raises(
        ValueError, match="needs the references of its image; got 2 captions and references of 1 images"
    ):
        score(["a", "b"], [["a"]])
    with pytest.raises(ValueError, match="at least one reference; got none for 2, first at index 1"):
        score(["a", "b", "c"], [["a"], [], []])
    for wrong in (("a", [["a"]]), (["a"], ["a dog"])):
        with pytest.raises(TypeError, match="got a string instead"):
            score(*wrong)


def test_captions_that_are_no_lists_of_tokens():
    tokens = ["a", "dog"]
    for wrong in (
        lambda: CiderD([[tokens], ["a dog"]]),
        lambda: CiderD([[tokens]]).score(["a dog"], [[tokens]]),
        lambda: CiderD([[tokens]]).score([tokens], [[tokens, "a dog"]]),
        lambda: right_words("a dog", [tokens]),
        lambda: right_words(tokens, ["a dog"]),
    ):
        with pytest.raises(TypeError, match="a caption must be a list of tokens, .* got the string 'a dog'"):
            wrong()


def test_nothing_to_score():
    with pytest.raises(ValueError, match=r"no captions to score; call update\("):
        CaptionScores().compute()
    with pytest.raises(ValueError, match="no captions to score"):
        meteor([], [])
    with pytest.raises(ValueError, match="at least one image for its document frequencies; got none"):
        CiderD([])


def test_meteor_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match="METEOR needs Java.*install a Java runtime"):
        meteor(["a"], [["a"]])
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setitem(sys.modules, "pycocoevalcap", None)
    with pytest.raises(ValueError, match=r'METEOR needs pycocoevalcap; install with: pip install "pycocoevalcap>=1.2"'):
        meteor(["a"], [["a"]])


@pytest.mark.parametrize("program", ["exit 1", "while read line; do echo nonsense; done"])
def test_meteor_says_that_java_failed(monkeypatch, tmp_path, program):
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\n{program}\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    failed = r"METEOR's Java program failed \(.+\); does `java -version` work"
    with pytest.raises(RuntimeError, match=failed):
        meteor(["a"], [["a"]])
    scores = CaptionScores(with_meteor=True)
    scores.update(CAPTIONS, REFERENCES)
    with pytest.warns(UserWarning, match=f"no METEOR: {failed}"):
        assert scores.compute() == scores_of(CAPTIONS, REFERENCES)  # the others are not lost


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("java"), reason="METEOR needs Java")
def test_meteor():
    same = meteor(["A dog runs home.", "two cats sleep"], [["a dog runs home", "x"], ["Two cats sleep !"]])
    assert same == pytest.approx(100) and meteor([""], [["a dog"]]) == 0
    stems, others = meteor(["the dog run"], [["The dogs run."]]), meteor(["the dog run"], [["green apples"]])
    assert 70 < stems < 95 and others == 0  # METEOR knows that "dogs" is the plural
    scores = CaptionScores(with_meteor=True)
    scores.update(CAPTIONS, REFERENCES)
    assert scores.compute() == {**scores_of(CAPTIONS, REFERENCES), "meteor": meteor(CAPTIONS, REFERENCES)}
    assert scores.compute().keys() == scores.signatures.keys()


@pytest.mark.parametrize(
    "caption, references, want",
    [
        ("a dog runs", ["a dog runs"], 1.0),
        ("a dog runs", ["a cat runs far away now"], 2 / 6),  # short: of the reference's length
        ("a a a dog", ["a dog", "a a cat"], 3 / 4),  # at most two a
        ("a dog", ["one dog sits there", "the dog"], 1 / 2),
        ("", ["a dog"], 0.0),
        ("a dog", [""], 0.0),
        ("", [""], 0.0),
    ],
)
def test_right_words(caption, references, want):
    assert right_words(caption.split(), [text.split() for text in references]) == pytest.approx(want)
