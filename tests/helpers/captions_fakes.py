"""Made-up images with captions in the files and forms of the real data sets."""

import io
import json
import random
import tarfile

import numpy as np
import PIL.Image

from zoo.data import COCO, Flickr8k, Flickr30k, ImageCaptions

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255), "black": (0, 0, 0)}
_WORDS = "a the dog man child runs jumps stands on in near water grass street with ball tree snow".split()


def picture(number, width=20, height=16, kind="PNG"):
    """The bytes of an image that is different for each number: noise in a frame of one of the `COLOURS`."""
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
    pixels[0] = pixels[-1] = list(COLOURS.values())[number % len(COLOURS)]
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def caption(rng, number):
    """Random words, one of which tells the colour; a capital at the beginning, a full stop at the end."""
    words = rng.choices(_WORDS, k=rng.randint(2, 12))
    words.insert(rng.randrange(len(words)), list(COLOURS)[number % len(COLOURS)])
    return f"{' '.join(words)} .".capitalize()


def write(path, content):
    """Writes bytes or text, and the folders above."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def archive(path, images):
    """Writes a plain tar archive of images, name -> bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as file:
        for name, content in images.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))


def sample(sizes=(24, 6, 6), captions=5, seed=0):
    """Images of each split: split -> name -> (bytes, captions)."""
    rng = random.Random(seed)
    splits, number = {}, 0
    for split, size in zip(("train", "val", "test"), sizes, strict=True):
        splits[split] = {}
        for _ in range(size):
            texts = [caption(rng, number) for _ in range(captions)]
            splits[split][f"{number:04}.png"] = (picture(number), texts)
            number += 1
    return splits


def invent(data_class, init_args, root, splits=None):
    """Writes files that `data_class(**init_args)` reads from `root`; returns what is in them, see `sample`."""
    splits = splits or sample()
    _WRITERS[data_class](root, init_args, splits)
    return splits


def flickr8k_archives(root, init_args, splits):
    """Archives and one table."""
    rows = [
        f"{name}\t{split}\t{number}\t{text}\n"
        for split, images in splits.items()
        for name, (_, texts) in images.items()
        for number, text in enumerate(texts)
    ]
    write(root / "captions.tsv", "".join(["image\tsplit\tcaption_id\tcaption\n", *rows]))
    for split, images in splits.items():
        contents = [(name, content) for name, (content, _) in images.items()]
        half = len(contents) // 2
        parts = {"train-00": contents[:half], "train-01": contents[half:]} if split == "train" else {split: contents}
        for name, part in parts.items():
            archive(root / f"{name}.tar", dict(part))


def flickr8k_authors(root, init_args, splits):
    """The authors' files."""
    lines = ["2258277193_586949ec62.jpg.1#0\tA caption without an image .\n"]
    for split, images in splits.items():
        write(
            root / f"Flickr_8k.{'dev' if split == 'val' else split}Images.txt", "".join(f"{name}\n" for name in images)
        )
        for name, (content, texts) in images.items():
            write(root / "Flicker8k_Dataset" / name, content)
            lines += [f"{name}#{number}\t{text}\n" for number, text in enumerate(texts)]
    write(root / "Flickr8k.token.txt", "".join(lines))


def _karpathy(root, splits, name, place):
    images = []
    for number, (split, image, content, texts) in enumerate(
        (split, image, *rest) for split, images in splits.items() for image, rest in images.items()
    ):
        folder, fields = place(split)
        write(root / folder / image, content)
        sentences = [{"raw": text, "tokens": text.lower().split()[:-1]} for text in texts]
        part = "restval" if split == "train" and number % 2 else split
        images.append({"filename": image, "split": part, "sentences": sentences, **fields})
    write(root / f"dataset_{name}.json", json.dumps({"images": images, "dataset": name}))


def _flickr30k(root, init_args, splits):
    _karpathy(root / "flickr30k", splits, "flickr30k", lambda split: ("flickr30k-images", {}))


def _coco(root, init_args, splits):
    folders = {"train": "train2014", "val": "val2014", "test": "val2014"}
    _karpathy(root / "coco", splits, "coco", lambda split: (folders[split], {"filepath": folders[split]}))


def _image_captions(root, init_args, splits):
    rows = []
    for split, images in splits.items():
        for name, (content, texts) in images.items():
            write(root / init_args["folder"] / name, content)
            rows += [f"{name}\t{text}\t{split}\n" for text in texts]
    write(root / init_args["captions"], "".join(["image\tcaption\tsplit\n", *rows]))


_WRITERS = {Flickr8k: flickr8k_archives, Flickr30k: _flickr30k, COCO: _coco, ImageCaptions: _image_captions}
