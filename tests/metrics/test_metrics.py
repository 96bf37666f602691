"""Scores against sacrebleu itself, tokens against written-out expectations, sharding against one process."""

import gzip
import os
import sys
from pathlib import Path

import forks
import process_worker
import pytest
import sacrebleu
import torch.multiprocessing as mp

from zoo.metrics import CorpusScore, ExactMatch, moses_lowercase

HYPOTHESES = [
    "Ein Mann steht im Schnee.",
    "Zwei Hunde spielen mit einem roten Ball am Strand.",
    "Eine Frau liest.",
    "Der Junge sagt: „Ich gehe heim.“",
    "",
]
REFERENCES = [
    "Ein Mann steht im Schnee.",
    "Zwei Hunde spielen am Strand mit einem roten Ball.",
    "Die Frau liest ein Buch.",
    "Ein Junge sagt: „Ich gehe nach Hause.“",
    "Ein Zug.",
]


@pytest.mark.parametrize(
    "lang, text, expected",
    [
        (
            "en",
            "A man's T-shirt, and  a well-known dog (red).",
            "a man &apos;s t-shirt , and a well-known dog ( red ) .",
        ),
        ("en", 'Mr. X says "hello", twice.', "mr. x says &quot; hello , &quot; twice ."),
        ("de", "Er sagt: „Ich bin der Chef.“", "er sagt : &quot; ich bin der chef &quot; ."),
        ("de", "Ein Läufer läuft 3,5 km & mehr ...", "ein läufer läuft 3,5 km &amp; mehr ..."),
        (
            "fr",
            "L'homme jette un coup d’œil aujourd'hui.",
            "l&apos; homme jette un coup d &quot; œil aujourd&apos; hui .",
        ),
        ("fr", "Il écrit « Bonjour ».", "il écrit &quot; bonjour &quot; ."),
        ("en", "", ""),
    ],
)
def test_moses_lowercase(lang, text, expected):
    assert moses_lowercase([text], lang) == [expected]


@pytest.mark.slow
@pytest.mark.parametrize("lang", ["en", "de", "fr"])
@pytest.mark.parametrize("split", ["val", "test_2016_flickr", "test_2017_flickr"])
def test_moses_lowercase_gives_the_tokenised_files_of_multi30k(split, lang):
    if "ZOO_TEST_DATA" not in os.environ:
        pytest.skip("needs the Multi30k files: set ZOO_TEST_DATA to the folder that holds multi30k/, or nmt/multi30k/")
    given = Path(os.environ["ZOO_TEST_DATA"])
    root = next(path for path in (given / "multi30k", given / "nmt/multi30k") if path.is_dir())
    raw, tokenised = (
        gzip.decompress((root / name).read_bytes()).decode().splitlines()
        for name in (f"{split}.{lang}.gz", f"tok/{split}.lc.norm.tok.{lang}.gz")
    )
    assert moses_lowercase(raw, lang) == tokenised


def test_moses_lowercase_knows_three_letter_codes():
    assert moses_lowercase(["L'eau."], "fra") == moses_lowercase(["L'eau."], "fr") == ["l&apos; eau ."]


def test_scores_are_those_of_sacrebleu_whatever_the_batches():
    expected = {
        "bleu": sacrebleu.corpus_bleu(
            moses_lowercase(HYPOTHESES, "de"), [moses_lowercase(REFERENCES, "de")], tokenize="none", force=True
        ).score,
        "sacrebleu": sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score,
        "chrf": sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score,
        "exact_match": 20.0,
    }
    for size in (1, 2, 5):
        score = CorpusScore("de")
        for start in range(0, 5, size):
            score.update(HYPOTHESES[start : start + size], REFERENCES[start : start + size])
        assert score.compute() == expected
    score.reset()
    score(REFERENCES, REFERENCES)
    assert score.compute() == pytest.approx(dict.fromkeys(expected, 100.0))


def test_case_counts_only_for_the_cased_scores():
    score = CorpusScore("de")
    score.update([text.lower() for text in REFERENCES], REFERENCES)
    found = score.compute()
    assert found["bleu"] == pytest.approx(100) and found["sacrebleu"] < 60 and found["exact_match"] == 0


def test_tokenised_text_is_scored_as_it_is():
    hypotheses, references = (
        ["der hund &apos;s ball , rot ."] * 2,
        ["der hund &apos;s ball ; rot .", "Der hund &apos;s ball , rot ."],
    )
    score = CorpusScore("de", tokenized=True)
    score.update(hypotheses, references)
    assert score.compute()["bleu"] == sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True).score
    plain = CorpusScore("de")
    plain.update(hypotheses, references)
    assert plain.compute()["bleu"] != score.compute()["bleu"]
    assert score.signatures["bleu"].startswith("text:as-given|nrefs:1|case:mixed|eff:no|tok:none|")
    assert {**score.signatures, "bleu": ""} == {**plain.signatures, "bleu": ""}


@pytest.mark.parametrize("lang", ["ja", "zho"])
def test_languages_without_spaces_are_scored_by_characters(lang):
    """One wrong character of nine leaves most of the sentence right; as one word it would all be wrong."""
    score = CorpusScore(lang)
    score.update(["私は犬が好きです。"], ["私は猫が好きです。"])
    values = score.compute()
    assert 50 < values["bleu"] == values["sacrebleu"] < 90 and values["exact_match"] == 0
    assert all("tok:char" in score.signatures[name] for name in ("bleu", "sacrebleu"))
    assert score.signatures["bleu"].startswith("text:lc|") and "moses" not in score.signatures["bleu"]


def test_signatures_name_everything():
    signatures = CorpusScore("deu").signatures
    assert set(signatures) == {"bleu", "sacrebleu", "chrf"}
    assert signatures["bleu"].startswith("moses:lc.norm.tok-de|sacremoses:")
    assert "|nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:" in signatures["bleu"]
    assert signatures["sacrebleu"] == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert "nc:6|nw:0" in signatures["chrf"]


def _score_shard(rank, shards, store, results):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=len(shards))
    score = CorpusScore("de")
    for i in shards[rank]:
        score.update([HYPOTHESES[i]], [REFERENCES[i]])
    results.put(score.compute())
    dist.destroy_process_group()


def test_sharding_changes_nothing(tmp_path):
    whole = CorpusScore("de")
    whole.update(HYPOTHESES, REFERENCES)
    forks.start()
    results = forks.CONTEXT.SimpleQueue()
    shards = [[4, 0, 3, 1, 2], []]  # the second process has nothing to score
    mp.start_processes(_score_shard, (shards, tmp_path / "store", results), nprocs=2, start_method="forkserver")
    assert [results.get() for _ in shards] == [whole.compute()] * 2


def test_exact_match_needs_no_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    score = ExactMatch()
    score.update(HYPOTHESES, REFERENCES)
    assert score.compute() == {"exact_match": 20.0}
    score.reset()
    score(["1999-01-01", "1999-01-02"], ["1999-01-01", "1999-01-03"])
    assert score.compute() == {"exact_match": 50.0}


@pytest.mark.parametrize("score", [CorpusScore("de"), ExactMatch()], ids=["corpus", "exact"])
def test_wrong_use(score):
    with pytest.raises(ValueError, match="needs one reference; got 2 translations and 1 references"):
        score.update(["a", "b"], ["a"])
    for wrong, name, got in [
        (("a b", "a c"), "translations", "'a b'"),  # one string
        ((["a"], "b"), "references", "'b'"),
        ((["a"], [["a"]]), "references", r"\['a'\]"),  # as other libraries take them
        ((["a", None], ["a", "b"]), "translations", "None"),
    ]:
        with pytest.raises(TypeError, match=f"{name} must be a list with one string for each sentence; got {got}"):
            score.update(*wrong)
    with pytest.raises(ValueError, match=r"no translations to score; call update\("):
        score.compute()


def test_import_is_cheap():
    run = forks.Fork(process_worker.imported, "zoo.metrics", "sacrebleu", "sacremoses").wait()
    assert run.output.split() == ["zoo.metrics"]


@pytest.mark.parametrize("code", ["zh-CN", "ZH", "zh_Hans", "zh"])
def test_a_region_does_not_change_the_measure(code):
    score = CorpusScore(code)
    score.update(["今天天气很好我们去公园"], ["今天天气很好我们去学校"])
    plain = CorpusScore("zh")
    plain.update(["今天天气很好我们去公园"], ["今天天气很好我们去学校"])
    assert score.compute() == plain.compute() and score.compute()["sacrebleu"] > 50
    assert score.signatures == plain.signatures
    assert CorpusScore("de-AT").signatures == CorpusScore("de").signatures
