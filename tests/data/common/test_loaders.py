import itertools
import pickle
import random

import numpy as np
import pytest
import torch

from zoo.data.common.arrays import PairArrays
from zoo.data.common.bpe_dropout import BpeDropout
from zoo.data.common.loaders import BatchStream, EvalLoader, TrainLoader, cut_batches
from zoo.text import Tokenizer

PAIRS = 1003
BY_SIZE, BY_TOKENS = {"batch_size": 16}, {"batch_size": None, "batch_tokens": 300}


def _sentence(rng, number, words):
    return " ".join([f"n{number}", *rng.choices("abcdefgh", k=words)])


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    rng = random.Random(0)
    lengths = [rng.randint(2, 30) for _ in range(PAIRS)]
    pairs = [(_sentence(rng, i, n), _sentence(rng, i, n + rng.randint(-2, 2))) for i, n in enumerate(lengths)]
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), "word", 2000)
    folder = tmp_path_factory.mktemp("pairs") / "arrays"
    PairArrays.build(folder, iter(pairs), tokenizer, tokenizer, max_length=None)
    arrays = PairArrays(folder)
    arrays.first_token = {i: tokenizer.encode(f"n{i}")[0] for i in range(PAIRS)}  # identifies a pair
    return arrays


def _numbers(batches):
    """The first token of each pair, which is different for every pair."""
    return [number for batch in batches for number in batch.src[:, 0].tolist()]


def _same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one[:4], other[:4], strict=True))


def test_cut_by_sentences_is_even():
    assert cut_batches(np.ones(10, int), 4, None, world_size=1) == [3, 6, 10]
    assert cut_batches(np.ones(3, int), 64, None, world_size=1) == [3]
    assert cut_batches(np.ones(5, int), 1, None, world_size=2) == [2, 5]  # never fewer than a sentence for each process


def test_cut_by_tokens_keeps_the_budget():
    lengths = np.sort(np.random.default_rng(0).integers(1, 50, 500))
    for world_size in (1, 3):
        ends = cut_batches(lengths, None, 200, world_size)
        starts = [0, *ends[:-1]]
        sizes = np.diff([0, *ends])
        costs = [-(-(end - start) // world_size) * lengths[start:end].max() for start, end in zip(starts, ends)]
        assert ends[-1] == 500 and sizes.min() >= world_size
        assert max(costs[:-1]) <= 200
        assert np.mean(costs[:-1]) > 170  # no batch could be much larger


def test_cut_by_tokens_keeps_a_sentence_beyond_the_budget():
    assert cut_batches(np.array([2, 2, 90]), None, 10, world_size=1) == [2, 3]


@pytest.mark.parametrize(("budget", "num_workers"), [(BY_SIZE, 0), (BY_TOKENS, 0), (BY_TOKENS, 2)])
def test_every_pair_once_an_epoch(arrays, budget, num_workers):
    loader = TrainLoader(BatchStream(arrays, pool_batches=10, **budget), num_workers=num_workers)
    batches = list(loader)
    assert len(batches) == len(loader)
    assert sorted(_numbers(batches)) == sorted(arrays.first_token.values())


def test_epochs_differ_and_depend_on_the_seed_only(arrays):
    one, other = (TrainLoader(BatchStream(arrays, 16, pool_batches=10, seed=5)) for _ in range(2))
    first, second = _numbers(one), _numbers(one)
    assert first != second and sorted(first) == sorted(second)
    assert [_numbers(other), _numbers(other)] == [first, second]
    assert _numbers(TrainLoader(BatchStream(arrays, 16, pool_batches=10, seed=6))) != first


def test_batches_of_a_length_stand_elsewhere_in_each_epoch(arrays):
    loader = TrainLoader(BatchStream(arrays, 16, pool_batches=200))  # all pairs are sorted together
    first, second = ([batch.tgt.size(1) for batch in loader] for _ in range(2))
    assert first != second and sorted(first) == sorted(second) and first != sorted(first)


def test_workers_do_not_change_the_batches(arrays):
    loaders = [TrainLoader(BatchStream(arrays, 16, pool_batches=10), num_workers=workers) for workers in (0, 2)]
    for _ in range(2):
        assert all(_same(*pair) for pair in zip(*loaders, strict=True))


@pytest.mark.parametrize(
    ("budget", "num_workers", "given"),
    [(budget, 0, given) for budget in (BY_SIZE, BY_TOKENS) for given in (1, 40, "all")] + [(BY_TOKENS, 2, 40)],
)
def test_resume_continues_exactly(arrays, budget, num_workers, given):
    def loader():
        return TrainLoader(BatchStream(arrays, pool_batches=10, **budget), num_workers=num_workers)

    whole = loader()
    expected = [*whole, *whole]
    given = len(whole) if given == "all" else given
    stopped = loader()
    list(itertools.islice(stopped, given))  # never exhausts the iterator, as Lightning does
    state = pickle.loads(pickle.dumps(stopped.state_dict()))
    resumed = loader()
    resumed.load_state_dict(state)
    got = [*resumed, *resumed]
    assert len(got) == 2 * len(whole) - given % len(whole)
    assert all(_same(*pair) for pair in zip(expected[given:], got, strict=False))


def test_resume_with_other_batches(arrays):
    state = TrainLoader(BatchStream(arrays, 16)).state_dict()
    with pytest.raises(
        ValueError, match="cannot resume: the checkpoint was made with 63 batches per epoch, now .* 126"
    ):
        TrainLoader(BatchStream(arrays, 8)).load_state_dict(state)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loading_leaves_the_global_random_state_alone(arrays, num_workers):
    before = torch.get_rng_state()
    next(iter(TrainLoader(BatchStream(arrays, 16), num_workers=num_workers)))
    assert torch.equal(before, torch.get_rng_state())


def test_processes_share_the_batches_of_one(arrays):
    one = TrainLoader(BatchStream(arrays, 48, pool_batches=4))
    three = [TrainLoader(BatchStream(arrays, 16, pool_batches=4, rank=rank, world_size=3)) for rank in range(3)]
    for whole, *shares in zip(one, *three, strict=True):
        assert sorted(_numbers([whole])) == sorted(_numbers(shares))
        sizes = [len(share.src) for share in shares]
        assert max(sizes) - min(sizes) <= 1 and max(sizes) <= 16


def test_little_padding(arrays):
    batches = list(TrainLoader(BatchStream(arrays, 16, pool_batches=200)))
    for ids, lengths in (("src", "src_lengths"), ("tgt", "tgt_lengths")):
        real = sum(int(getattr(batch, lengths).sum()) for batch in batches)
        padded = sum(getattr(batch, ids).numel() - (ids == "tgt") * len(batch.tgt) for batch in batches)
        assert real / padded > 0.9  # a shuffled order has 0.58


def test_no_batch_is_larger_than_its_budget(arrays):
    """Sentences times the longest side, with its end; the batches of an epoch use nearly all of it."""
    rng = random.Random(3)
    tokens = [([4] * rng.randint(1, 9), [5] * rng.randint(1, 9)) for _ in range(300)]
    training = TrainLoader(BatchStream(arrays, None, 300, pool_batches=10))
    for budget, batches in ((300, training), (60, EvalLoader([("s", "t")] * 300, tokens, None, 60))):
        costs = [len(batch.src) * max(batch.src.size(1), batch.tgt.size(1) - 1) for batch in batches]
        assert max(costs) <= budget and np.mean(costs) > 0.85 * budget


def test_more_processes_than_pairs(arrays):
    with pytest.raises(ValueError, match="cannot shard 1003 training pairs over 1004 processes"):
        BatchStream(arrays, 16, world_size=1004)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_gives_every_pair_once(world_size):
    pairs = [(f"s{i}", f"t{i}") for i in range(50)]
    rng = random.Random(1)
    tokens = [([4 + i] * rng.randint(1, 9), [5] * rng.randint(1, 9)) for i in range(50)]
    loaders = [EvalLoader(pairs, tokens, 8, None, rank, world_size) for rank in range(world_size)]
    assert len({len(list(loader)) for loader in loaders}) == 1  # processes stay in step
    batches = [batch for loader in loaders for batch in loader]
    texts = [pair for batch in batches for pair in zip(batch.src_text, batch.tgt_text, strict=True)]
    assert sorted(texts) == sorted(pairs)
    for batch in batches:
        assert [f"s{number - 4}" for number in batch.src[:, 0].tolist()] == batch.src_text
    lengths = [int(length) for batch in loaders[0] for length in batch.src_lengths]
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("options", [(8, None), (None, 20)])
def test_more_processes_than_evaluation_pairs(options):
    pairs = [("a", "b"), ("c", "d")]
    shares = [list(EvalLoader(pairs, [([4], [4]), ([5], [5])], *options, rank, 3)) for rank in range(3)]
    assert [[batch and batch.src_text for batch in share] for share in shares] == [[["a"]], [["c"]], [None]]


def test_arrays_hold_what_was_written(tmp_path):
    pairs = [("a b", "c"), ("", "c"), ("a a a a", "c"), ("b", "c c c"), ("a", " ")]
    src = Tokenizer.train(["a b"], "word", 10)
    tgt = Tokenizer.train(["c"], "word", 10)
    folder = tmp_path / "x" / "arrays"
    PairArrays.build(folder, iter(pairs), src, tgt, max_length=3)
    arrays = pickle.loads(pickle.dumps(PairArrays(folder)))
    assert (len(arrays), arrays.too_long, arrays.empty) == (2, 1, 2)
    rows = arrays.rows(np.array([1, 0]))
    assert [[row.tolist() for row in side] for side in rows] == [
        [src.encode("b"), src.encode("a b")],
        [tgt.encode("c c c"), tgt.encode("c")],
    ]
    assert [side.tolist() for side in arrays.lengths(np.array([0, 1]))] == [[2, 1], [1, 3]]
    PairArrays.build(folder, iter([]), src, tgt, max_length=3)  # present already: nothing to do
    assert [file.name for file in folder.parent.iterdir()] == ["arrays"]


def test_failed_build_leaves_nothing(tmp_path):
    tokenizer = Tokenizer.train(["a"], "word", 10)
    with pytest.raises(ValueError, match=r"no training pair is within max_length=1 tokens \(2 pairs are longer\)"):
        PairArrays.build(tmp_path / "arrays", iter([("a a", "a")] * 2), tokenizer, tokenizer, max_length=1)
    with pytest.raises(ValueError, match="the training text is empty"):
        PairArrays.build(tmp_path / "arrays", iter([]), tokenizer, tokenizer, max_length=1)
    assert list(tmp_path.iterdir()) == []


def test_no_budget(arrays):
    message = "give batch_size or batch_tokens; got neither"
    with pytest.raises(ValueError, match=message):
        cut_batches(np.ones(3, np.int64), None, None, 1)
    with pytest.raises(ValueError, match=message):
        BatchStream(arrays, None)


class _Untold:
    """Items whose tokens nobody can ask for."""

    noun, special, tokens, texts = "items", 0, 12, 3

    def __len__(self):
        return 3

    def lengths(self, index):
        return index, index

    def batch(self, index):
        return index

    def release(self):
        pass


def test_bpe_dropout_needs_tokens():
    tokenizer = Tokenizer.train(["a b ab abc"], "bpe", 20)
    dropout = BpeDropout(tokenizer, 0.1, 0)
    with pytest.raises(ValueError, match="BPE-dropout needs sentence pairs; got _Untold"):
        BatchStream(_Untold(), 2, dropouts=(dropout, dropout))
