"""Opening images of every kind, refusing what is none, and the transform."""

import io
import json
import random
import struct
import warnings
import zlib

import numpy as np
import PIL.Image
import pytest
import torch
from PIL import ImageFile

from zoo.vision.images import MAX_PIXELS, ImageError, ImageTransform, check_header, open_image


def _noise(width=20, height=14, mode="RGB", seed=0):
    bands = len(mode)
    shape = (height, width, bands) if bands > 1 else (height, width)
    return PIL.Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def _bytes(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _array(image):
    assert image.mode == "RGB" and image.info == {}
    return np.asarray(image)


def _png(width, height, pixels=b"", bits=8, colour=2):
    """A PNG whose header claims a size."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


# What can be opened


def test_paths_bytes_and_images_are_the_same(tmp_path):
    image = _noise()
    path = tmp_path / "ä b.png"
    path.write_bytes(_bytes(image))
    for source in (path, str(path), path.read_bytes(), image, PIL.Image.open(path)):
        assert np.array_equal(_array(open_image(source)), np.asarray(image))
    with pytest.raises(TypeError, match="an image must be a path, bytes or a PIL image; got int"):
        open_image(3)


def test_the_users_image_is_left_alone():
    image = _noise()
    image.info["comment"] = "mine"
    opened = open_image(image)
    opened.putpixel((0, 0), (1, 2, 3))
    assert image.info == {"comment": "mine"} and image.getpixel((0, 0)) != (1, 2, 3)


@pytest.mark.parametrize("size", [(1, 1), (30_000, 10), (10, 30_000)])
@pytest.mark.parametrize("resize", ["squash", "crop"])
def test_odd_sizes(size, resize):
    opened = open_image(_bytes(PIL.Image.new("RGB", size, (10, 20, 30))))
    pixels = ImageTransform(32, resize).pixels(opened)
    assert opened.size == size and pixels.dtype == torch.uint8
    assert torch.equal(pixels, torch.tensor([10, 20, 30], dtype=torch.uint8).view(3, 1, 1).expand(3, 32, 32))


def test_grey_palette_and_one_bit():
    grey = _noise(mode="L")
    assert np.array_equal(_array(open_image(_bytes(grey))), np.asarray(grey)[..., None].repeat(3, 2))
    palette = _noise().quantize(16)
    assert np.array_equal(_array(open_image(_bytes(palette))), np.asarray(palette.convert("RGB")))
    bits = grey.convert("1")
    assert np.array_equal(_array(open_image(_bytes(bits)))[..., 0], np.asarray(bits) * 255)


def test_transparency_becomes_white():
    image = PIL.Image.new("RGBA", (3, 1), (200, 100, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 0))
    image.putpixel((2, 0), (0, 0, 0, 51))
    expected = [[200, 100, 0], [255, 255, 255], [204, 204, 204]]
    assert _array(open_image(_bytes(image)))[0].tolist() == expected
    grey = PIL.Image.new("LA", (2, 1), (9, 255))
    grey.putpixel((1, 0), (9, 0))
    assert _array(open_image(_bytes(grey)))[0].tolist() == [[9] * 3, [255] * 3]
    palette = PIL.Image.new("P", (2, 1), 0)
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putpixel((1, 0), 1)
    for kind in ("PNG", "GIF"):
        assert _array(open_image(_bytes(palette, kind, transparency=1)))[0].tolist() == [[10, 20, 30], [255] * 3]
    rgb = PIL.Image.new("RGB", (2, 1), (1, 2, 3))
    rgb.putpixel((1, 0), (4, 5, 6))
    assert _array(open_image(_bytes(rgb, transparency=(4, 5, 6))))[0].tolist() == [[1, 2, 3], [255] * 3]


def test_more_than_eight_bits():
    levels = np.array([[0, 1, 128, 257, 32_896, 65_535]], np.uint16)
    expected = [0, 0, 0, 1, 128, 255]
    for kind in ("PNG", "TIFF"):
        opened = open_image(_bytes(PIL.Image.fromarray(levels), kind))
        assert _array(opened)[0, :, 1].tolist() == expected
    dark = PIL.Image.fromarray(np.full((1, 2), 100, np.uint16))  # no brighter for being dark
    assert _array(open_image(dark)).max() == 0
    for values, white in (([0, 51, 255], 255), ([0, 13_107, 65_535], 65_535)):
        wide = PIL.Image.fromarray(np.array([values], np.int32))
        assert _array(open_image(_bytes(wide, "TIFF")))[0, :, 0].tolist() == [0, 51, 255], white
    for white in (1.0, 255.0, 65_535.0, 1e6):
        light = PIL.Image.fromarray(np.array([[-1, 0, white / 5, white, np.nan]], np.float32))
        assert _array(open_image(_bytes(light, "TIFF")))[0, :, 0].tolist() == [0, 0, 51, 255, 0]


def test_cmyk():
    image = PIL.Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    for kind, tolerance in (("TIFF", 0), ("JPEG", 3)):
        assert np.abs(_array(open_image(_bytes(image, kind))).astype(int) - [255, 0, 0]).max() <= tolerance


def test_the_first_frame_of_an_animation():
    frames = [PIL.Image.new("RGB", (4, 4), colour) for colour in ("red", "lime", "blue")]
    for kind in ("GIF", "PNG", "WEBP"):
        options = {"lossless": True} if kind == "WEBP" else {}
        content = _bytes(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert PIL.Image.open(io.BytesIO(content)).n_frames == 3
        assert (_array(open_image(content)) == [255, 0, 0]).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(kind, orientation):
    upright = np.zeros((16, 32, 3), np.uint8)
    upright[:8, :8] = 255, 0, 0
    upright[8:, 24:] = 0, 0, 255
    # How a camera held that way stores the scene: EXIF says where row 0 and column 0 of the stored array are.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright),
        7: np.rot90(upright, 2).transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    image = PIL.Image.fromarray(np.ascontiguousarray(stored))
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    content = _bytes(image, kind, exif=exif, **options)
    for source in (content, PIL.Image.open(io.BytesIO(content))):
        opened = open_image(source)
        assert np.abs(_array(opened).astype(int) - upright).max() < 12
        assert np.array_equal(_array(open_image(opened)), _array(opened))  # not turned once more


def test_metadata_may_be_damaged():
    image = _noise()
    content = _bytes(image, "PNG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff\0\0")
    assert np.array_equal(_array(open_image(content)), np.asarray(image))


# What cannot


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
def test_a_truncated_file(tmp_path, kind):
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False
    path = tmp_path / "photo"
    content = _bytes(_noise(64, 64), kind)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(
        ImageError, match=r"^/.*/photo: (the image is damaged and cannot|not an image in a known)"
    ) as caught:
        open_image(path)
    assert "\n" not in str(caught.value)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


def test_what_is_no_image(tmp_path):
    (tmp_path / "text.jpg").write_text("I am not a photo.\n" * 100)
    (tmp_path / "empty.jpg").touch()
    for name, message in [
        ("text.jpg", r"text.jpg: not an image in a known format; give one of JPEG, PNG, GIF, WEBP"),
        ("empty.jpg", "empty.jpg: the file is empty"),
        ("nowhere.jpg", "nowhere.jpg: no such file"),
        (".", r"a folder; give an image"),
        ("a\0b", r"cannot be read \((stat: )?embedded null (byte|character in path)\)"),
    ]:
        with pytest.raises(ImageError, match=message):
            open_image(f"{tmp_path}/{name}")
    for source, message in [(b"", "^the image: the file is empty"), (PIL.Image.new("RGB", (0, 3)), "has no pixels")]:
        with pytest.raises(ImageError, match=message):
            open_image(source)
    with pytest.raises(ImageError, match="^photo 7: the file is empty"):
        open_image(b"", "photo 7")
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    with pytest.raises(ImageError, match="not an image in a known format"):  # would be run by Ghostscript
        open_image(script)


def test_a_closed_image(tmp_path):
    (tmp_path / "a.png").write_bytes(_bytes(_noise()))
    image = PIL.Image.open(tmp_path / "a.png")
    image.close()
    with pytest.raises(ImageError, match="^the image: the image is damaged and cannot be decoded"):
        open_image(image)


@pytest.mark.parametrize("size", [(8_001, 8_000), (14_000, 14_300), (2**31 - 1, 2**31 - 1)])
def test_too_many_pixels_are_not_decoded(monkeypatch, size):
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for check in (open_image, lambda content, name: check_header(io.BytesIO(content), name)):
            with pytest.raises(
                ImageError, match="^bomb.png: more pixels than the limit of 64,000,000.*; make the image smaller"
            ):
                check(_png(*size), "bomb.png")


def test_the_limit_itself():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pillow warns of fewer pixels than this package allows
        check_header(io.BytesIO(_png(8_000, MAX_PIXELS // 8_000)), "large.png")
    limit = PIL.Image.new("1", (8_001, 8_000))
    with pytest.raises(ImageError, match="limit of 64,000,000, 8,001 x 8,000; make"):
        open_image(limit)


def _mutated(rng, contents):
    content = bytearray(rng.choice(contents))
    for _ in range(rng.randint(1, 8)):
        start = rng.randrange(len(content)) if content else 0
        match rng.randrange(4):
            case 0:
                content[start : start + 1] = bytes([rng.randrange(256)])
            case 1:
                del content[start : start + rng.randint(1, 60)]
            case 2:
                content[start:start] = rng.randbytes(rng.randint(1, 20))
            case 3:
                content[start : start + 4] = rng.choice(
                    [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\x01\0\0"]
                )
    return bytes(content[: rng.randrange(len(content) + 1)]) if rng.random() < 0.1 else bytes(content)


def _originals():
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    frames = [_noise(seed=seed) for seed in range(3)]
    animation = {"save_all": True, "append_images": frames[1:]}
    image, alpha = frames[0], _noise(mode="RGBA")
    contents = [_bytes(image, kind, exif=exif) for kind in ("PNG", "JPEG", "WEBP")]
    contents += [_bytes(image, kind, **animation) for kind in ("GIF", "PNG", "WEBP", "TIFF")]
    contents += [_bytes(image, "JPEG", progressive=True), _bytes(image.convert("CMYK"), "JPEG"), _bytes(image, "BMP")]
    contents += [
        _bytes(alpha),
        _bytes(alpha, "WEBP"),
        _bytes(image.quantize(8), transparency=2),
        _bytes(image, "JPEG2000"),
    ]
    contents += [_bytes(PIL.Image.fromarray(np.arange(280, dtype=np.uint16).reshape(14, 20))), _bytes(image, "PPM")]
    return contents


@pytest.mark.parametrize("count", [400, pytest.param(3_000, marks=pytest.mark.slow)])
def test_mutated_files(count):
    rng = random.Random(count)
    contents = _originals()
    outcomes = {"opened": 0, "refused": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(count):
            try:
                opened = open_image(_mutated(rng, contents), "mutant")
            except ImageError as error:
                outcomes["refused"] += 1
                assert str(error).startswith("mutant: ") and "\n" not in str(error) and len(str(error)) < 300
            else:
                outcomes["opened"] += 1
                ImageTransform(16).pixels(opened)
    assert min(outcomes.values()) > count / 10  # both happen often


# The transform


def test_an_image_of_the_right_size_is_untouched():
    image = _noise(24, 24)
    for resize in ("squash", "crop"):
        assert torch.equal(
            ImageTransform(24, resize).pixels(image), torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy())
        )


def test_squash_and_crop():
    image = PIL.Image.new("RGB", (90, 30), (255, 0, 0))  # red, green in the middle third, blue
    image.paste((0, 255, 0), (30, 0, 60, 30))
    image.paste((0, 0, 255), (60, 0, 90, 30))
    squashed, cropped = ImageTransform(30).pixels(image), ImageTransform(10, "crop").pixels(image)
    assert squashed[:, 15, [2, 15, 27]].T.tolist() == [[255, 0, 0], [0, 255, 0], [0, 0, 255]]
    assert torch.equal(cropped, torch.tensor([0, 255, 0], dtype=torch.uint8).view(3, 1, 1).expand(3, 10, 10))
    assert ImageTransform().framed(image) is image
    assert ImageTransform(resize="crop").framed(image).getcolors() == [(900, (0, 255, 0))]
    upright = image.rotate(90, expand=True)
    assert torch.equal(ImageTransform(10, "crop").pixels(upright), cropped)


def test_resizing_averages():
    fine = np.zeros((64, 64, 3), np.uint8)
    fine[::2] = 255
    assert (
        ImageTransform(8).pixels(PIL.Image.fromarray(fine)).int() - 128
    ).abs().max() < 10  # without antialias 0 or 255


def test_pixels_of_other_modes():
    grey = _noise(8, 8, "L")
    assert torch.equal(ImageTransform(8).pixels(grey)[2], torch.from_numpy(np.asarray(grey).copy()))


def test_normalize():
    transform = ImageTransform(2, mean=(0.5, 0.25, 0.0), std=(0.5, 1.0, 2.0))
    pixels = torch.tensor([0, 51, 255, 102], dtype=torch.uint8).view(1, 1, 2, 2).repeat(2, 3, 1, 1)
    values = transform.normalize(pixels)
    assert values.dtype == torch.float32 and values.shape == (2, 3, 2, 2)
    for i in range(3):
        expected = [(x / 255 - transform.mean[i]) / transform.std[i] for x in (0, 51, 255, 102)]
        torch.testing.assert_close(values[1, i].flatten(), torch.tensor(expected))


def test_json():
    transform = ImageTransform(96, "crop", (0.1, 0.2, 0.3), (1, 2, 3))
    assert ImageTransform.from_json(transform.to_json()) == transform
    good = json.loads(transform.to_json())
    for text, message in [
        ("{", "not an image transform in JSON form"),
        ("[]", r"an image transform is a JSON object with size, resize, mean, std; got \[\]"),
        ('{"size": 3}', "with size, resize, mean, std; got size"),
        (json.dumps({**good, "crop": 1}), "got size, resize, mean, std, crop"),
        (json.dumps({**good, "size": 0}), "size must be a whole number of pixels, at least 1; got 0"),
        (json.dumps({**good, "size": "9"}), "size must be a whole number of pixels, at least 1; got '9'"),
        (json.dumps({**good, "size": True}), "size must be .*; got True"),
        (json.dumps({**good, "resize": "pad"}), "resize must be one of 'squash', 'crop'; got 'pad'"),
        (json.dumps({**good, "resize": ["pad"]}), "resize must be one of"),
        (json.dumps({**good, "mean": 0.5}), "mean must be three numbers, for red, green and blue; got 0.5"),
        (json.dumps({**good, "mean": [0.5, 0.5]}), "mean must be three numbers"),
        (
            json.dumps({**good, "mean": [0.5, 0.5, float("nan")]}),
            "not an image transform in JSON form: NaN is not allowed",
        ),
        (
            json.dumps({**good, "mean": [0.5, 0.5, 1e30]}),
            r"mean must be three numbers.*got .*1e\+30\] \(allowed: -10000 to 10000\)",
        ),
        (json.dumps({**good, "std": [1, 1, 0]}), r"std must be three positive numbers.*got \[1, 1, 0\]"),
        (json.dumps({**good, "std": ["1", 1, 1]}), "std must be three positive numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            ImageTransform.from_json(text)
