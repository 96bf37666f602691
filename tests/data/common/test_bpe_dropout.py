import itertools
import random

import numpy as np
import pytest
import torch

from zoo.data import ParallelText
from zoo.data.common.bpe_dropout import BpeDropout
from zoo.text import Tokenizer

WORDS = "snow snowing snowman man mankind kind kindly playing player, played (plays)! schneit Schneemann".split()


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(120)]


@pytest.fixture(scope="module")
def tokenizer(texts):
    return Tokenizer.train(texts, "bpe", 120)


def _rows(tokenizer, texts):
    return [np.array(tokenizer.encode(text), np.uint16) for text in texts]


def test_rate_zero_is_plain_bpe(tokenizer, texts):
    rng = random.Random(1)
    new = [" ".join("".join(rng.choices("aeilmnopswy", k=9)) for _ in range(4)) for _ in range(60)]
    rows = _rows(tokenizer, [*texts, *new])  # new words have several ways to be merged
    assert BpeDropout(tokenizer, 0.0)(rows, np.random.default_rng(0)) == [row.tolist() for row in rows]


def test_other_pieces_of_the_same_text(tokenizer, texts):
    rows = _rows(tokenizer, [*texts, "unknown 🙂 snow"])
    cut = BpeDropout(tokenizer, 0.3)(rows, np.random.default_rng(0))
    assert [tokenizer.decode(ids) for ids in cut] == [tokenizer.decode(row) for row in rows]
    assert 1.1 < sum(map(len, cut)) / sum(map(len, rows)) < 3
    assert len({tuple(ids) for ids in BpeDropout(tokenizer, 0.3)([rows[0]] * 50, np.random.default_rng(0))}) > 10


def test_rate_one_half_gives_a_merge_half_of_the_time():
    tokenizer = Tokenizer.train(["ab"] * 9, "bpe", 9)  # merges "▁a" or "ab", then the other
    dropout = BpeDropout(tokenizer, 0.5)
    characters = list(dropout._characters[tokenizer.encode("ab")[0]])
    words = [dropout._segment(characters, random.Random(i)) for i in range(4000)]
    assert sum(len(word) == 3 for word in words) / 4000 == pytest.approx(0.5, abs=0.03)  # its only first merge skipped
    assert sum(len(word) == 1 for word in words) / 4000 == pytest.approx(0.25, abs=0.03)


def test_depends_on_the_seeds_only(tokenizer, texts):
    rows = _rows(tokenizer, texts)
    first, again = BpeDropout(tokenizer, 0.2), BpeDropout(tokenizer, 0.2)
    again(rows[::-1], np.random.default_rng(9))  # words met in another order
    assert first(rows, np.random.default_rng(1)) == again(rows, np.random.default_rng(1))
    assert first(rows, np.random.default_rng(1)) != first(rows, np.random.default_rng(2))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_training_batches_resume_exactly(texts, tmp_path, num_workers):
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{text}\t{text}\n" for text in texts))

    def loader(rate=0.2):
        data = ParallelText(
            str(file), vocab_size=120, batch_size=8, bpe_dropout=rate, num_workers=num_workers, cache_dir=str(tmp_path)
        )
        data.prepare_data()
        data.setup("fit")
        return data.train_dataloader()

    whole, stopped, resumed = loader(), loader(), loader()
    expected = [*whole, *whole]
    list(itertools.islice(stopped, 5))
    resumed.load_state_dict(stopped.state_dict())
    assert all(torch.equal(a.src, b.src) and torch.equal(a.tgt, b.tgt) for a, b in zip(expected[5:], resumed))
    plain = loader(0.0)
    assert sum(batch.src_lengths.sum() for batch in plain) < sum(batch.src_lengths.sum() for batch in whole)


def test_bad_arguments():
    with pytest.raises(ValueError, match="bpe_dropout must be at least 0 and less than 1; got 1.5"):
        ParallelText("a", "b", bpe_dropout=1.5)
    with pytest.raises(ValueError, match="bpe_dropout needs tokenizer 'bpe'; got 'word'"):
        ParallelText("a", "b", bpe_dropout=0.1, tokenizer="word")
    with pytest.raises(ValueError, match="bpe_dropout needs tokenizer 'bpe'; got 'char'"):
        BpeDropout(Tokenizer.train(WORDS, "char", 60), 0.1)
