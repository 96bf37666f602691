"""Images with captions: every data set, the batches, resuming, sharing out, features of a frozen encoder."""

import gzip
import pickle
from types import SimpleNamespace

import captions_fakes as fakes
import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from zoo.data import COCO, Flickr8k, Flickr30k, ImageCaptions
from zoo.data.captioning import base as module
from zoo.data.captioning.arrays import CaptionArrays, CaptionStream, pad_captions, without_punctuation
from zoo.data.captioning.image_features import StoredRows, build_rows
from zoo.data.captioning.image_files import TarImages
from zoo.data.common.loaders import SortedLoader, TrainLoader
from zoo.text import BOS, EOS, PAD, UNK, Tokenizer
from zoo.vision.images import ImageError, ImageTransform, open_image

OPTIONS = {"min_frequency": 1, "size": 8, "batch_size": 4, "pool_batches": 2}
OWN = {"folder": "photos", "captions": "captions.tsv"}


@pytest.fixture(autouse=True)
def _own_data(own_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def _ready(data, stages=("fit", "test")):
    data.prepare_data()
    for stage in stages:
        data.setup(stage)
    return data


def _own(root, splits=None, **options):
    fakes.invent(ImageCaptions, OWN, root, splits)
    return _ready(ImageCaptions(**OWN, **{**OPTIONS, **options}))


def _pixels(content, size=8, resize="squash"):
    return ImageTransform(size, resize).pixels(open_image(content))


def _images(batch):
    """One hashable value an image: its pixels or features, its captions."""
    pairs = zip(batch.images, batch.captions, batch.lengths, strict=True)
    return [
        (
            image.numpy().tobytes(),
            tuple(tuple(row[: n + 1]) for row, n in zip(ids.tolist(), lengths.tolist(), strict=True) if n),
        )
        for image, ids, lengths in pairs
    ]


def _all(loader):
    return sorted(image for batch in loader for image in _images(batch))


def _expected(data, images, captions=5):
    def row(text):
        return (BOS, *data.tokenizer.encode(" ".join(text.split()[:-1])), EOS)  # the full stop is the last

    return sorted((_pixels(c).numpy().tobytes(), tuple(map(row, texts[:captions]))) for c, texts in images.values())


# The data sets


def _make(name, root):
    if name == "authors":
        splits = fakes.sample()
        fakes.flickr8k_authors(root / "flickr8k", {}, splits)
        return Flickr8k(**OPTIONS), splits
    data_class = {"archives": Flickr8k, "flickr30k": Flickr30k, "coco": COCO, "own": ImageCaptions}[name]
    arguments = OWN if name == "own" else {}
    folder = root / "captioning" if name == "archives" else root
    return data_class(**arguments, **OPTIONS), fakes.invent(data_class, arguments, folder)


@pytest.mark.parametrize("name", ["archives", "authors", "flickr30k", "coco", "own"])
def test_batches_hold_images_and_captions(name, root):
    data, splits = _make(name, root)
    _ready(data)
    train = data.train_dataloader()
    assert len(train) == 6 and train.stream.pools == 3
    assert _all(train) == _all(train) == _expected(data, splits["train"])
    assert _all(data.val_dataloader()) == _expected(data, splits["val"])
    (test,) = data.test_dataloader()
    assert _all(test) == _expected(data, splits["test"]) and data.test_names == ["test"]
    references = sorted(texts for batch in test for texts in batch.references)
    assert references == sorted(texts for _, texts in splits["test"].values())
    assert next(iter(train)).references is None


@pytest.mark.parametrize("place", ["", "captioning", "flickr8k"])
def test_flickr8k_is_found(place, root, monkeypatch):
    fakes.invent(Flickr8k, {}, root / place)
    monkeypatch.delenv("ZOO_DATA")
    data = Flickr8k(root=str(root), **OPTIONS)
    assert len(list(data.records("train"))) == 24
    data.images("test").open("0030.png").close()


def test_nothing_is_found(root):
    for data_class, message in [
        (
            Flickr8k,
            "Flickr8k: no file captions.tsv .*Pass root= or set ZOO_DATA to the folder with captions.tsv with",
        ),
        (Flickr30k, "Flickr30k: no file dataset_flickr30k.json .*with the images next to it in flickr30k-images or"),
        (COCO, "COCO: no file dataset_coco.json"),
    ]:
        with pytest.raises(FileNotFoundError, match=message):
            data_class().prepare_data()
    (root / "dataset_coco.json").write_text("{}")
    with pytest.raises(
        FileNotFoundError, match="COCO: there is no folder train2014 or val2014 next to .*dataset_coco.json"
    ):
        COCO().prepare_data()
    (root / "dataset_flickr30k.json").write_text("{}")
    with pytest.raises(
        FileNotFoundError, match="Flickr30k: there is no folder of images next to .*put them into flickr30k-images"
    ):
        Flickr30k().prepare_data()
    fakes.invent(Flickr8k, {}, root)
    (root / "val.tar").unlink()
    with pytest.raises(FileNotFoundError, match="Flickr8k: no file val.tar"):
        Flickr8k().prepare_data()


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"images": [{"filename": "a"}]}', '{"images": [3]}'])
def test_damaged_json(root, content):
    (root / "images").mkdir()
    (root / "dataset_flickr30k.json").write_text(content)
    with pytest.raises(ValueError, match="dataset_flickr30k.json: (not JSON|expected images with filename, split)"):
        Flickr30k().prepare_data()


def test_damaged_archives(root):
    fakes.invent(Flickr8k, {}, root)
    path = root / "test.tar"
    whole = path.read_bytes()
    images = TarImages([path])
    end = whole.index(fakes.picture(35)) + 40
    path.write_bytes(whole[:end])
    with images.open("0034.png") as file:
        assert file.read() == fakes.picture(34)
    with pytest.raises(ImageError, match=r"test.tar: 0035.png: the archive ends within this file; copy it again"):
        images.open("0035.png")
    for content in (whole[:end], b"no archive" * 100, gzip.compress(whole), b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="test.tar: not a complete, uncompressed tar archive"):
            TarImages([path])


def test_damaged_authors_file(root):
    fakes.flickr8k_authors(root, {}, fakes.sample())
    fakes.write(root / "Flickr8k.token.txt", "0001.png#0\tA dog .\nA cat .\n")
    with pytest.raises(
        ValueError, match="Flickr8k.token.txt, line 2: expected image#number, a tab and a caption; got 'A cat .'"
    ):
        list(Flickr8k().records("train"))


# Your own images


def _table(root, lines, header="image\tcaption"):
    fakes.write(root / "captions.tsv", "\n".join([header, *lines]) + "\n")


def _photos(root, count):
    for number in range(count):
        fakes.write(root / "photos" / f"{number}.png", fakes.picture(number))


def test_some_images_are_held_out(root):
    _photos(root, 40)
    _table(root, [f"{number}.png\tcaption {k} of n{number} ." for k in range(3) for number in range(40)])

    def parts(**options):
        data = ImageCaptions(**OWN, **options)
        return [sorted(record.image for record in data.records(split)) for split in ("train", "val", "test")]

    first = parts(val_fraction=0.2, test_fraction=0.1)
    assert list(map(len, first)) == [28, 8, 4] and len({name for part in first for name in part}) == 40
    assert (
        first == parts(val_fraction=0.2, test_fraction=0.1) != parts(val_fraction=0.2, test_fraction=0.1, split_seed=1)
    )
    data = ImageCaptions(**OWN, **OPTIONS, val_fraction=0.01, test_fraction=0)
    assert [len(list(data.records(split))) for split in ("train", "val")] == [39, 1]
    assert len(list(_ready(data, ["fit"]).val_dataloader())) == 1
    with pytest.raises(ValueError, match="there is no test image; give some lines the split test, or"):
        list(data.records("test"))


def test_two_images_are_too_few(root):
    _photos(root, 2)
    _table(root, ["0.png\ta dog .", "1.png\ta cat ."])
    with pytest.raises(
        ValueError, match="all images \\(2\\) are held out for validation and test; add images, or set test_"
    ):
        list(ImageCaptions(**OWN).records("train"))
    assert len(list(ImageCaptions(**OWN, test_fraction=0).records("train"))) == 1


def test_images_and_captions_that_do_not_belong_together(root, caplog):
    _photos(root, 12)
    fakes.write(root / "photos" / "sub" / "extra.JPG", fakes.picture(1))
    (root / "photos" / "notes.txt").write_text("not an image")
    lines = [f"{n}.png\ta dog .\ttrain" for n in range(6)] + [
        "6.png\ta cat .\tval",
        "7.png\t \ttrain",
        "8.png\tone .\ttrain",
    ]
    lines += [f"gone{n}.png\tgone .\ttrain" for n in range(7)]
    fakes.write(root / "photos" / "8.png", b"this is text")
    _table(root, lines, "image\tcaption\tsplit")
    data = _ready(ImageCaptions(**OWN, **OPTIONS), ["fit"])
    messages = [record.message for record in caplog.records]
    assert messages[0] == "4 images have no caption and are left out: 10.png, 11.png, 9.png, sub/extra.JPG"
    assert messages[1] == "1 train images have no caption and are left out: 7.png"
    gone = "gone0.png, gone1.png, gone2.png, gone3.png, gone4.png, ..."
    assert messages[2] == f"7 train images have captions but do not exist: {gone}"
    fault = f"{root}/photos/8.png: not an image in a known format; give one of"
    assert messages[3].startswith(f"1 train images cannot be used and are left out: {fault}")
    assert len(messages) == 4 and len(_all(data.train_dataloader())) == 6
    assert "gone" not in data.tokenizer.to_json()


def test_damage_inside_an_image(root, caplog):
    splits = fakes.sample()
    content, texts = splits["train"]["0003.png"]
    splits["train"]["0003.png"] = (content[: len(content) // 2], texts)
    data = _own(root, splits)
    advice = r"or pass check_images='decode' \(--data.check_images decode\) to leave"
    with pytest.raises(ImageError, match=f"photos/0003.png: the image is damaged .*, {advice}"):
        list(data.train_dataloader())
    assert not caplog.records
    data = _ready(ImageCaptions(**OWN, **OPTIONS, check_images="decode"))
    assert "1 train images cannot be used and are left out: " in caplog.text and "photos/0003.png" in caplog.text
    del splits["train"]["0003.png"]
    assert _all(data.train_dataloader()) == _expected(data, splits["train"])


def test_nothing_is_left(root):
    _photos(root, 2)
    fakes.write(root / "photos" / "1.png", b"text")
    _table(
        root, ["1.png\ta .\ttrain", "2.png\tb .\ttrain", "0.png\t\ttrain", "0.png\t \ttrain"], "image\tcaption\tsplit"
    )
    message = "no image of the train split can be used: 1 are missing, 1 damaged, 1 without caption; for example .*1.png: not an"
    with pytest.raises(ValueError, match=message):
        ImageCaptions(**OWN).prepare_data()


@pytest.mark.parametrize("mark", ",;")
def test_a_csv_with_splits(root, mark):
    _photos(root, 3)
    lines = [f'{number}.png{mark}"a{mark} b"{mark}{split}' for number, split in enumerate(("train", "val", "test"))]
    fakes.write(root / "captions.csv", "\n".join([mark.join(("image", "caption", "split")), *lines]) + "\n")
    data = ImageCaptions(**{**OWN, "captions": "captions.csv"})
    assert [record.image for record in data.records("val")] == ["1.png"]
    assert [record.captions for record in data.records("test")] == [[f"a{mark} b"]]


def test_mistakes_in_the_table(root):
    with pytest.raises(FileNotFoundError, match="captions: there is no file .*captions.tsv"):
        ImageCaptions(**OWN).prepare_data()
    for header, line, message in [
        ("file\ttext", "0.png\ta dog", "captions.tsv has no column 'image'; its first line names 'file', 'text'"),
        (
            "image\tcaption",
            "0.png",
            "captions.tsv, line 2: expected 2 tab-separated columns as in the first line; got 1",
        ),
        (
            "image\tcaption\tsplit",
            "0.png\ta dog\tdev",
            "split must be one of 'train', 'val', 'test'; got 'dev' of 0.png",
        ),
        ("image\tcaption\tsplit", "0.png\ta\tval\n0.png\tb\ttest", "0.png is in two splits, val and test"),
        ("image\tcaption\tsplit", "0.png\ta\ttrain", "there is no val image; give some lines the split val"),
        ("image\tcaption", "", "captions.tsv has a header and no row"),
    ]:
        _photos(root, 1)
        _table(root, [line] * bool(line), header)
        with pytest.raises(ValueError, match=message):
            ImageCaptions(**OWN).prepare_data()
    fakes.write(root / "captions.tsv", "image\tcaption\n0.png\tcafé\n".encode("latin-1"))
    with pytest.raises(
        ValueError, match="captions.tsv, line 2: byte 0xe9 .* is not utf-8 text; .*pass its encoding=, for"
    ):
        ImageCaptions(**OWN).prepare_data()
    (record,) = ImageCaptions(**OWN, encoding="latin-1").records("val")
    assert record == ("0.png", ["café"])
    _table(root, ["0.png\ta dog"])
    with pytest.raises(FileNotFoundError, match="folder: there is no folder .*elsewhere"):
        ImageCaptions("elsewhere", "captions.tsv").prepare_data()
    (root / "empty").mkdir()
    with pytest.raises(ValueError, match="empty has no image"):
        ImageCaptions("empty", "captions.tsv").prepare_data()


def test_mistakes_in_the_options():
    for options, message in [
        ({"batch_size": 0}, "batch_size must be at least 1; got 0"),
        ({"captions_per_image": 0}, "captions_per_image must be at least 1; got 0"),
        ({"flip": 1.5}, "flip must be a probability, from 0 to 1; got 1.5"),
        ({"check_images": "all"}, "check_images must be one of 'header', 'decode'; got 'all'"),
        ({"resize": "pad"}, "resize must be one of 'squash', 'crop'; got 'pad'"),
        ({"val_fraction": 0.7}, "val_fraction must be between 0 and 0.5; got 0.7"),
        ({"test_fraction": -1}, "test_fraction must be between 0 and 0.5; got -1"),
    ]:
        with pytest.raises(ValueError, match=message):
            ImageCaptions(**OWN, **options)


def test_prepare_comes_first(root):
    fakes.invent(ImageCaptions, OWN, root)
    with pytest.raises(
        FileNotFoundError, match=r"there are no tokenised captions in .*; call prepare_data\(\) before setup"
    ):
        ImageCaptions(**OWN).setup("fit")


def test_changed_files_are_noticed(root):
    splits = fakes.sample()
    data = _own(root, splits)
    del splits["train"]["0003.png"]
    splits["train"]["0004.png"] = (fakes.picture(99), ["A new caption ."])
    data = _own(root, splits)
    assert _all(data.train_dataloader()) == _expected(data, splits["train"])


# Captions


def test_punctuation():
    text = "\"Don't!\" he said - a 3.50 $ T-shirt's (red) half…"
    assert without_punctuation(text) == "Do n't he said a 3.50 $ T shirt 's red half"
    assert without_punctuation(" . , ... --") == "" == without_punctuation("")


def test_the_vocabulary(root):
    splits = {"train": {}, "val": {}, "test": {}}
    for number in range(6):
        texts = [f"A Dog , and n{number} .", "the dog"]
        splits[("train", "train", "train", "train", "val", "test")[number]][f"{number}.png"] = (
            fakes.picture(number),
            texts,
        )
    data = _own(root, splits, min_frequency=4)
    assert [data.tokenizer.encode(word) for word in ("dog", "A", "and", "the")] == [[4], [5], [6], [7]]
    assert [data.tokenizer.encode(word) for word in ("n1", ",", "never")] == [[UNK]] * 3 and len(data.tokenizer) == 8
    data = _ready(ImageCaptions(**OWN, **{**OPTIONS, "min_frequency": 4, "keep_punctuation": True}))
    assert {data.tokenizer.encode(mark)[0] for mark in ",."} & {UNK} == set()
    (batch,) = data.train_dataloader()
    assert batch.lengths.tolist() == [[7, 3]] * 4
    assert len(_ready(ImageCaptions(**OWN, **{**OPTIONS, "vocab_size": 6})).tokenizer) == 6


def test_padding():
    ids, lengths = pad_captions([[[7, 8, 9], [5]], [np.array([6, 6], np.uint16)], []])
    assert ids.tolist() == [
        [[BOS, 7, 8, 9, EOS], [BOS, 5, EOS, PAD, PAD]],
        [[BOS, 6, 6, EOS, PAD], [PAD] * 5],
        [[PAD] * 5, [PAD] * 5],
    ]
    assert lengths.tolist() == [[4, 2], [3, 0], [0, 0]] and ids.dtype == lengths.dtype == torch.int64
    ids, lengths = pad_captions([[], []])
    assert ids.tolist() == [[[PAD, PAD]]] * 2 and lengths.tolist() == [[0], [0]]


def test_captions_without_words(root):
    splits = fakes.sample((5, 2, 2), captions=2)
    splits["train"]["0001.png"][1][:] = ["A dog .", " ... !"]
    splits["train"]["0002.png"][1][:] = ["!", "?"]
    splits["val"]["0005.png"][1][:] = ["!", "?"]
    data = _own(root, splits, batch_size=9)
    (train,), (val,) = data.train_dataloader(), data.val_dataloader()
    assert sorted((row > 0).sum().item() for row in train.lengths) == [1, 2, 2, 2]
    assert sorted((row > 0).sum().item() for row in val.lengths) == [0, 2] and ["!", "?"] in val.references


def test_long_captions_are_cut_in_training_only(root):
    data = _own(root, max_words=3)
    assert max(batch.lengths.max() for batch in data.train_dataloader()) == 4
    assert max(batch.lengths.max() for batch in data.val_dataloader()) > 4
    assert all((batch.captions == EOS).sum() == (batch.lengths > 0).sum() for batch in data.train_dataloader())


def test_images_of_similar_captions_come_together(root):
    data = _own(root, fakes.sample((200, 6, 6), captions=1), pool_batches=50)
    lengths = [batch.lengths[:, 0] for batch in data.train_dataloader()]
    assert np.mean([row.max() - row.min() for row in lengths]) < 1  # a shuffled order has 8
    longest = [row.max().item() for row in lengths]
    assert longest != sorted(longest)


def test_some_captions_are_drawn(root):
    splits = fakes.sample((8, 6, 6), captions=6)
    splits["train"]["0000.png"] = (fakes.picture(0), ["a red dog .", "a red ball ."])
    data = _own(root, splits, captions_per_image=3)
    loader, known = data.train_dataloader(), dict(_expected(data, splits["train"], captions=6))
    epochs = [dict(_all(loader)) for _ in range(30)]
    for image, captions in known.items():
        drawn = [epoch[image] for epoch in epochs]
        if len(captions) == 2:
            assert set(drawn) == {captions}
            continue
        assert all(len(set(three)) == 3 and set(three) <= set(captions) for three in drawn)
        counts = [sum(caption in three for three in drawn) for caption in captions]
        assert sum(counts) == 90 and min(counts) >= 5  # 15 on average
    assert _all(data.val_dataloader()) == _expected(data, splits["val"], captions=3)


def test_flips(root):
    splits = fakes.sample((12, 6, 6))
    splits["train"]["0002.png"][1][3] = "The dog on the Left side ."
    splits["train"]["0003.png"][1][0] = "He leftover rights ."
    data = _own(root, splits, flip=0.5)
    plain = {_pixels(content).numpy().tobytes(): name for name, (content, _) in splits["train"].items()}
    mirrored = {_pixels(content).flip(-1).numpy().tobytes(): name for name, (content, _) in splits["train"].items()}
    loader, flips = data.train_dataloader(), dict.fromkeys(splits["train"], 0)
    for _ in range(40):
        images = [image for image, _ in _all(loader)]
        assert sorted((plain | mirrored)[image] for image in images) == sorted(flips)
        for image in images:
            if image in mirrored:
                flips[mirrored[image]] += 1
    assert flips.pop("0002.png") == 0
    assert min(flips.values()) >= 8 and max(flips.values()) <= 32
    assert {image for image, _ in _all(data.val_dataloader())} == {
        _pixels(c).numpy().tobytes() for c, _ in splits["val"].values()
    }


# Order, resuming, sharing out


VARIED = {"flip": 0.5, "captions_per_image": 3}


def test_epochs_and_seeds_differ(root):
    data = _own(root, **VARIED)
    other = _ready(ImageCaptions(**OWN, **OPTIONS, **VARIED, seed=1))
    first, again, different = ([_images(batch) for batch in d.train_dataloader()] for d in (data, data, other))
    assert first == again != different


@pytest.mark.parametrize(("given", "num_workers"), [(1, 0), (4, 2), (6, 0), (11, 0)])
def test_resume_is_exact(root, given, num_workers):
    data = _own(root, **VARIED)
    whole = data.train_dataloader()
    expected = [_images(batch) for _ in range(3) for batch in whole]
    data.num_workers = num_workers
    stopped, taken = data.train_dataloader(), 0
    while taken < given:
        for _ in stopped:
            taken += 1
            if taken == given:
                break
    state = pickle.loads(pickle.dumps(stopped.state_dict()))
    resumed = _ready(ImageCaptions(**OWN, **OPTIONS, **VARIED)).train_dataloader()
    resumed.load_state_dict(state)
    got = [_images(batch) for _ in range(2) for batch in resumed]
    assert got == expected[given : given + len(got)] and len(got) == 12 - given % 6


def test_processes_share_every_epoch(root):
    data = _own(root, **VARIED)
    arrays = data._arrays("train")
    one = TrainLoader(CaptionStream(arrays, 4, pool_batches=3))
    two = [TrainLoader(CaptionStream(arrays, 2, None, 3, 0, rank, 2), 0, 2 * rank) for rank in range(2)]
    for _ in range(2):
        for whole, *shares in zip(one, *two, strict=True):
            assert sorted(_images(whole)) == sorted(image for share in shares for image in _images(share))
    with pytest.raises(ValueError, match="cannot shard 24 training images over 25 processes"):
        CaptionStream(arrays, 2, world_size=25)
    val = data._arrays("val")
    loaders = [SortedLoader(val, 2, None, rank, 3) for rank in range(3)]
    assert len({len(list(loader)) for loader in loaders}) == 1
    assert sorted(sum(map(_all, loaders), [])) == _all(data.val_dataloader())


def test_a_worker_can_be_spawned(root):
    data = _own(root, **VARIED, cache_pixels=True)
    arrays = data._arrays("train")
    index = np.arange(24)
    assert _images(pickle.loads(pickle.dumps(arrays)).batch(index, 3)) == _images(arrays.batch(index, 3))


def test_the_global_random_state_is_left_alone(root):
    data = _own(root, **VARIED)
    torch.manual_seed(0)
    np.random.seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    list(data.train_dataloader())
    assert torch.equal(torch.get_rng_state(), before[0]) and np.random.get_state()[1].tolist() == before[1]


# Stored pixels and features


class Encoder(pl.LightningModule):
    """Features that tell which image they are of; trains a bias of the captions' length."""

    def __init__(self, key="a", size=8):
        super().__init__()
        self.key, self.calls, self.fails_at = key, [], None
        self.transform = ImageTransform(size, "crop")
        self.drop = torch.nn.Dropout(0.5)
        self.bias = torch.nn.Parameter(torch.zeros(3))
        self.seen = []

    def feature_key(self):
        return self.key

    def extract_features(self, pixels):
        assert not torch.is_grad_enabled() and not self.training and not self.drop.training
        assert pixels.dtype == torch.uint8 and pixels.device == self.device
        if len(self.calls) == self.fails_at:
            raise KeyboardInterrupt
        self.calls.append(len(pixels))
        return self.drop(features(pixels))

    def training_step(self, batch):
        self.seen.append(batch)
        return (self.bias * batch.images.float().mean((0, 1))).sum()

    def validation_step(self, batch):
        assert batch.images.shape[1:] == (16, 3) and batch.references

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def features(pixels):
    """Values in rows from top to bottom and left to right: (B, 3, 8, 8) -> (B, 16, 3)."""
    return torch.nn.functional.avg_pool2d(pixels.float() / 255, 2).flatten(2).transpose(1, 2)


def _attached(model, stage="fit", **options):
    data = ImageCaptions(**OWN, **{**OPTIONS, **options})
    strategy = SimpleNamespace(root_device=torch.device("cpu"), barrier=lambda: None)
    ranks = {"global_rank": 0, "local_rank": 0, "world_size": 1, "current_epoch": 0}
    state = SimpleNamespace(fn=stage)
    data.trainer = SimpleNamespace(
        lightning_module=model, state=state, strategy=strategy, train_dataloader=None, **ranks
    )
    return _ready(data, [stage])


def _direct(images, mirrored=False):
    pixels = [_pixels(content, 8, "crop") for content, _ in images.values()]
    rows = features(torch.stack(pixels).flip(-1) if mirrored else torch.stack(pixels)).half()
    return {row.numpy().tobytes() for row in rows}


def test_features_are_computed_once(root):
    splits = fakes.invent(ImageCaptions, OWN, root, fakes.sample((70, 6, 6)))
    model = Encoder().train()
    data = _attached(model)
    batches = list(data.train_dataloader())
    assert {batch.images.dtype for batch in batches} == {torch.float16} and batches[0].images.shape == (4, 16, 3)
    assert {image for batch in batches for image, _ in _images(batch)} == _direct(splits["train"])
    assert {image for batch in data.val_dataloader() for image, _ in _images(batch)} == _direct(splits["val"])
    assert model.calls == [32, 32, 6, 6] and model.training and model.drop.training
    again = Encoder()
    assert _all(_attached(again).train_dataloader()) == sorted(image for batch in batches for image in _images(batch))
    assert again.calls == []
    for other in (Encoder("b"), Encoder(size=10)):
        list(_attached(other).train_dataloader())
        assert other.calls == [32, 32, 6]
    no_key = Encoder(None)
    (batch, *_) = _attached(no_key).train_dataloader()
    assert batch.images.dtype == torch.uint8 and no_key.calls == []
    switched_off = Encoder("c")
    (batch, *_) = _attached(switched_off, cache_features=False).train_dataloader()
    assert batch.images.shape == (4, 3, 8, 8) and switched_off.calls == []


def test_features_of_mirrored_images(root):
    splits = fakes.invent(ImageCaptions, OWN, root)
    model = Encoder()
    data = _attached(model, flip=0.5)
    loader, seen = data.train_dataloader(), set()
    for _ in range(20):
        seen |= {image for image, _ in _all(loader)}
    assert seen == _direct(splits["train"]) | _direct(splits["train"], mirrored=True) and len(seen) == 48
    list(data.val_dataloader())
    assert model.calls == [24, 24, 6]


def test_features_are_resumed(root, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 5)
    splits = fakes.invent(ImageCaptions, OWN, root)
    model = Encoder()
    model.fails_at = 3
    with pytest.raises(KeyboardInterrupt):
        _attached(model).train_dataloader()
    assert model.training  # as it was
    resumed = Encoder()
    assert {image for image, _ in _all(_attached(resumed).train_dataloader())} == _direct(splits["train"])
    assert model.calls == [5, 5, 5] and resumed.calls == [5, 4]


def test_too_large_features(root):
    fakes.invent(ImageCaptions, OWN, root)
    model = Encoder()
    model.extract_features = lambda pixels: torch.full((len(pixels), 2, 3), 1e6)
    with pytest.raises(
        ValueError, match="features of the encoder are too large for fp16, or NaN; pass cache_features=False"
    ):
        _attached(model).train_dataloader()


def test_only_one_process_of_a_machine_computes(root):
    fakes.invent(ImageCaptions, OWN, root)
    model, first = Encoder(), Encoder()
    data = _attached(model)
    waiting = data.trainer
    waiting.local_rank = waiting.global_rank = 1
    waiting.strategy.barrier = lambda: list(_attached(first).train_dataloader())
    assert len(data._arrays("train")) == 24
    assert (model.calls, first.calls) == ([], [24])


def test_pixels_can_be_stored(root, monkeypatch):
    data = _own(root, **VARIED)
    expected = [_images(batch) for batch in data.train_dataloader()]
    stored = _ready(ImageCaptions(**OWN, **OPTIONS, **VARIED, cache_pixels=True))
    assert [_images(batch) for batch in stored.train_dataloader()] == expected
    monkeypatch.setattr("zoo.data.captioning.image_features.decode", None)
    assert [_images(batch) for batch in stored.train_dataloader()] == expected


def _rows(index):
    return np.stack([np.full((2, 3), i, np.float16) for i in index])


def test_rows_survive_interruptions_and_damage(tmp_path):
    folder, calls = tmp_path / "rows", []

    def rows(index):
        calls.append(index.tolist())
        if len(calls) == 3:
            raise OSError("disk full")
        return _rows(index)

    def build(count=10):
        calls_before = len(calls)
        build_rows(folder, count, rows, 4, "Rows")
        assert np.array_equal(StoredRows(folder).rows(np.array([9, 0, 3])), _rows([9, 0, 3]))
        assert len(StoredRows(folder)._values) == count
        return calls[calls_before:]

    with pytest.raises(OSError, match="disk full"):
        build()
    with (folder / "partial").open("ab") as file:
        file.write(b"a row, but not to its end")
    assert build() == [[8, 9]] and build() == []
    assert sorted(path.name for path in folder.iterdir()) == ["checksums.json", "lock", "meta.json", "values"]
    values = folder / "values"
    everything = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    whole = values.read_bytes()
    for damaged in (whole[:-1], whole[:5] + b"?" + whole[6:]):
        values.write_bytes(damaged)
        assert build() == everything
    values.rename(folder / "partial")
    for progress, expected in (("8", [[8, 9]]), ("10", []), ("11", everything), ("", everything), ("x", everything)):
        (folder / "progress").write_text(progress)
        assert build() == expected
        values.rename(folder / "partial")
    (folder / "partial").write_bytes(b"")
    (folder / "progress").write_text("8")
    assert build() == everything


def test_a_training_run(root):
    splits = fakes.invent(ImageCaptions, OWN, root)
    model = Encoder()
    options = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(accelerator="cpu", max_epochs=2, **options)
    trainer.fit(model, ImageCaptions(**OWN, **OPTIONS))
    assert len(model.seen) == 12 and model.calls == [6, 24]  # validation is tried first
    assert {image for batch in model.seen[:6] for image, _ in _images(batch)} == _direct(splits["train"])


def test_a_pretrained_model_brings_its_tokenizer(root):
    splits = fakes.invent(ImageCaptions, OWN, root)
    model = Encoder(None)
    model.tokenizer = Tokenizer.train(["dog red ball"] * 2, "word_punct", 50)
    data = _attached(model)
    assert data.tokenizer is model.tokenizer
    assert {i for batch in data.train_dataloader() for i in batch.captions.flatten().tolist()} == {*range(7)}
    for name in splits["train"]:
        (root / "photos" / name).unlink()  # the training images are not looked at
    data = _attached(model, "test")
    assert len(_all(data.test_dataloader()[0])) == 6


def test_a_file_that_the_model_names_is_found(root, tmp_path, monkeypatch):
    data = ImageCaptions(**OWN)
    fakes.write(root / "captioning" / "backbones" / "net.safetensors", "")
    assert data.locate("backbones/net.safetensors") == root / "captioning" / "backbones" / "net.safetensors"
    fakes.write(root / "backbones" / "net.safetensors", "")
    assert data.locate("backbones/net.safetensors") == root / "backbones" / "net.safetensors"
    own = fakes.write(tmp_path / "own.safetensors", "")
    assert data.locate(str(own)) == own
    with pytest.raises(
        FileNotFoundError, match="there is no file net nor .*/data/net nor .*/captioning/net; correct the name"
    ):
        data.locate("net")


def test_captions_alone(root):
    data = _ready(_own(root))
    captions = CaptionArrays(data._folder("train", data.tokenizer), None, 1)
    assert captions.captions() == data.training_captions()
    captions.release()
    with pytest.raises(ValueError, match="^there are no batches of captions alone; give CaptionArrays the images too$"):
        captions.batch(np.arange(2))
