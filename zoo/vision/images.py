"""Pictures: opened whatever their format, and brought to the pixels a model wants."""

import io
import json
import os
import re
import reprlib
import stat
import warnings
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, BinaryIO, Literal

import numpy as np
import PIL.Image
import PIL.ImageOps
from PIL.Image import Resampling

from zoo.utils import strict_json

if TYPE_CHECKING:  # the processes of `zoo serve` that decode images do not load torch
    from torch import Tensor

MAX_PIXELS = 64_000_000  # width times height of the largest image that is decoded: 256 MB in memory
MAX_SCANS = 100  # passes over the pixels of a JPEG; cameras write 1, programs that write progressive files about 10

# Pixel formats only: others make Pillow start a program (EPS), or have another size than their header says (ICO).
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "MPO", "PPM", "JPEG2000", "AVIF")
_RESIZES = ("squash", "crop")
_DETAIL = 1280  # pixels a side that a large JPEG keeps at least when it is decoded for a small square
# How long a pixel takes, at most and about, compared with one of a plain JPEG, 20 ns.
_FAST, _SLOWNESS_OF_OTHERS, _SLOWNESS_OF_PLAIN_TEXT = ("BMP", "GIF"), 3, 60
_FREE_SCANS = 10  # of a progressive JPEG, which take about as long as a plain one
# Of a JPEG: a marker with content. 0xFF also stands before 0 (a byte of the pixels), before itself, and in markers
# without content.
_JPEG_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])", re.DOTALL)
_END_OF_IMAGE, _START_OF_SCAN = 0xD9, 0xDA


class ImageError(ValueError):
    """An image that cannot be used; the message is one line that names it and says what is wrong."""


def open_image(
    source: str | os.PathLike | bytes | PIL.Image.Image, name: str | None = None, side: int | None = None
) -> PIL.Image.Image:
    """An upright RGB image from what a user has.

    The EXIF orientation is applied, of an animation the first frame is taken, transparent parts become white, 16 bits
    are scaled to 8. The limits `MAX_PIXELS` and `MAX_SCANS` are checked before any pixel is decoded.

    Args:
        source: a path, the bytes of a file, or a PIL image, which is left as it is.
        name: what messages call it; else the path, if there is one.
        side: pixels a side that the image is wanted for. A large JPEG is then decoded at 1/2, 1/4 or 1/8 of its size,
            which saves time and memory: never below four times these pixels, nor below 1,280.

    Returns:
        a new image of mode RGB that carries no metadata.

    Raises:
        ImageError: there is no such file, it is no image or a damaged one, or it has too many pixels.
        TypeError: `source` is something else.
    """
    if isinstance(source, PIL.Image.Image):
        return _decoded(source, name or "the image")
    if isinstance(source, bytes):
        file, name = io.BytesIO(source), name or "the image"
    elif isinstance(source, (str, os.PathLike)):
        name = name or os.fspath(source)
        file = open_file(source, name)
    else:
        raise TypeError(f"an image must be a path, bytes or a PIL image; got {type(source).__name__}")
    with file, _opened(file, name) as image:
        if side is not None:
            image.draft(None, (max(4 * side, _DETAIL),) * 2)  # does nothing unless it is a JPEG
        return _decoded(image, name)


def decoding_work(content: bytes, name: str) -> int:
    """About how many pixels of a plain JPEG take as long to decode as this image, told from its header.

    Args:
        content: of an image file.
        name: what messages call it.

    Raises:
        ImageError: see `open_image`.
    """
    file = io.BytesIO(content)
    with _opened(file, name) as image:
        width, height = image.size
        if image.format in ("JPEG", "MPO"):
            slowness = max(1, _scans(file) / _FREE_SCANS)
        elif image.format == "PPM" and image.tile and image.tile[0][0] == "ppm_plain":
            slowness = _SLOWNESS_OF_PLAIN_TEXT
        else:
            slowness = 1 if image.format in _FAST else _SLOWNESS_OF_OTHERS
        return round(width * height * slowness)


def open_file(path: str | os.PathLike, name: str) -> BinaryIO:
    """An image file, opened to be read.

    Raises:
        ImageError: there is no such file, or it cannot be read.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
            raise ImageError(f"{name}: {'a folder' if os.path.isdir(path) else 'no regular file'}; give an image file")
        return open(path, "rb")
    except ImageError:
        raise
    except FileNotFoundError as error:
        raise ImageError(f"{name}: there is no such file") from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise ImageError(f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


def check_header(file: BinaryIO, name: str) -> None:
    """Refuses what is no image, or has too many pixels, without decoding any; damage further on is not noticed.

    Args:
        file: an image file.
        name: what messages call it.

    Raises:
        ImageError: see `open_image`.
    """
    _opened(file, name).close()


def _opened(file: BinaryIO, name: str) -> PIL.Image.Image:
    if not file.seek(0, os.SEEK_END):
        raise ImageError(f"{name}: the file is empty")
    PIL.Image.init()
    formats = [kind for kind in _FORMATS if kind in PIL.Image.OPEN]
    try:
        with warnings.catch_warnings():  # about what is an error here, or does not concern the pixels
            warnings.simplefilter("ignore")
            image = PIL.Image.open(file, formats=formats)
    except PIL.UnidentifiedImageError as error:
        raise ImageError(f"{name}: not an image in a known format; give one of {', '.join(formats)}") from error
    except PIL.Image.DecompressionBombError as error:
        raise _too_large(name, "") from error
    except Exception as error:  # decoders of a third party: on damaged files they raise anything
        raise _damaged(name, error) from error
    _check_size(image, name)
    if image.format in ("JPEG", "MPO") and (scans := _scans(file)) > MAX_SCANS:
        raise ImageError(
            f"{name}: {scans:,} scans, more than the limit of {MAX_SCANS}; save the image again as a plain JPEG"
        )
    return image


def _scans(file: BinaryIO) -> int:
    """How often a JPEG has the decoder go over all pixels; a small file may ask for thousands of times."""
    position = file.tell()
    file.seek(0)
    content = file.read()
    file.seek(position)
    scans = start = 0
    while (marker := _JPEG_MARKER.search(content, start)) is not None:
        kind = marker[1][0]
        if kind == _END_OF_IMAGE:
            break
        scans += kind == _START_OF_SCAN
        start = marker.end() + int.from_bytes(content[marker.end() : marker.end() + 2], "big")
    return scans


def _decoded(image: PIL.Image.Image, name: str) -> PIL.Image.Image:
    _check_size(image, name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image.load()
            image = _rgb(_upright(image))
    except Exception as error:  # as above
        raise _damaged(name, error) from error
    image.info = {}  # so that nobody turns it once more
    return image


def _check_size(image: PIL.Image.Image, name: str) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise _too_large(name, f", {width:,} x {height:,}")
    if width < 1 or height < 1:
        raise ImageError(f"{name}: the image has no pixels ({width} x {height})")


def _too_large(name: str, size: str) -> ImageError:
    return ImageError(f"{name}: more pixels than the limit of {MAX_PIXELS:,}{size}; make the image smaller")


def _damaged(name: str, error: Exception) -> ImageError:
    if isinstance(error, MemoryError):
        return ImageError(f"{name}: takes more memory to decode than there is; make the image smaller")
    reason = " ".join(str(error).split()) or type(error).__name__
    return ImageError(f"{name}: the image is damaged and cannot be decoded ({reason}); replace the file")


def _upright(image: PIL.Image.Image) -> PIL.Image.Image:
    try:
        return PIL.ImageOps.exif_transpose(image)
    except Exception:  # of many classes: metadata may be damaged where the pixels are not
        return image


def _rgb(image: PIL.Image.Image) -> PIL.Image.Image:
    if image.mode[0] in "IF":  # 16 bits, 32 bits and floating point: Pillow would cut them off at 255
        return _grey(image).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = PIL.Image.new("RGB", image.size, "white")
        white.paste(image, mask=image.getchannel("A"))
        return white
    return image.convert("RGB")


def _grey(image: PIL.Image.Image) -> PIL.Image.Image:
    """8 bits from 16 or from numbers without a stated range, of which the values tell whether it is 1, 8 or 16 bits."""
    values = np.nan_to_num(
        np.array(image, dtype=np.float32), copy=False
    )  # 4 bytes a pixel, so all that follows is in place
    if image.mode.startswith("I;16"):
        white = 65_535.0
    else:
        lights = (255.0, 65_535.0) if image.mode == "I" else (1.0, 255.0, 65_535.0)
        white = next((light for light in lights if values.max() <= light), float(values.max()))
    values.clip(0, white, out=values)
    values *= 255 / white
    values += 0.5
    return PIL.Image.fromarray(values.astype(np.uint8))


@dataclass(frozen=True)
class ImageTransform:
    """How an image becomes the input of a model; saved beside the weights.

    Attributes:
        size: pixels of a side of the square.
        resize: "squash": the whole frame, whatever its shape; "crop": the shorter side becomes `size`, and the middle
            of the other one is kept.
        mean: subtracted from red, green and blue, which are in [0, 1].
        std: what they are then divided by.
    """

    size: int = 224
    resize: Literal["squash", "crop"] = "squash"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size < 1:
            raise ValueError(f"size must be a whole number of pixels, at least 1; got {self.size!r}")
        if self.resize not in _RESIZES:
            raise ValueError(f"resize must be one of {str(_RESIZES)[1:-1]}; got {self.resize!r}")
        for name, positive in (("mean", False), ("std", True)):
            values = getattr(self, name)
            numbers = isinstance(values, (tuple, list)) and all(type(value) in (int, float) for value in values)
            low = (
                1e-4 if positive else -1e4
            )  # smaller ones would leave the range of the numbers that a network works with
            if not numbers or len(values) != 3 or not all(low <= x <= 1e4 for x in values):
                kind = "positive numbers" if positive else "numbers"
                limits = f"(allowed: {low:g} to {1e4:g})"
                raise ValueError(
                    f"{name} must be three {kind}, for red, green and blue; got {reprlib.repr(values)} {limits}"
                )
            object.__setattr__(self, name, tuple(map(float, values)))

    def pixels(self, image: PIL.Image.Image) -> "Tensor":
        """The image at the size of the model; one that has this size already is untouched.

        Args:
            image: best from `open_image`.

        Returns:
            (3, size, size) uint8.
        """
        import torch

        return torch.from_numpy(np.asarray(self.resized(image)).transpose(2, 0, 1).copy())

    def resized(self, image: PIL.Image.Image) -> PIL.Image.Image:
        """The same as an image."""
        if image.mode != "RGB":
            image = open_image(image)
        if image.size == (self.size, self.size):
            return image
        # The part that is kept is cut out first: a long strip as high as the square would not fit into memory.
        return self.framed(image).resize((self.size, self.size), Resampling.BICUBIC)

    def framed(self, image: PIL.Image.Image) -> PIL.Image.Image:
        """The part of an image that the model is given, in its own size and shape."""
        if self.resize == "squash":
            return image
        width, height = image.size
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        return image.crop((left, top, left + side, top + side))

    def normalize(self, pixels: "Tensor") -> "Tensor":
        """What the encoder is given.

        Args:
            pixels: (B, 3, S, S) uint8.

        Returns:
            (B, 3, S, S) float32 on the same device.
        """
        pixels = pixels.float()
        mean, std = (pixels.new_tensor(x).view(3, 1, 1) for x in (self.mean, self.std))
        return (pixels / 255 - mean) / std  # (B, 3, S, S)

    def to_json(self) -> str:
        """The transform as JSON text."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "ImageTransform":
        """The inverse of `to_json`.

        Raises:
            ValueError: the text is no JSON object, or one with other keys, or a value is not allowed.
        """
        try:
            values = strict_json.loads(text, 0)
        except ValueError as error:
            raise ValueError(f"not an image transform in JSON form: {error}") from error
        names = [field.name for field in fields(cls)]
        if not isinstance(values, dict) or sorted(values) != sorted(names):
            got = ", ".join(values)[:100] if isinstance(values, dict) else reprlib.repr(values)
            raise ValueError(f"an image transform is a JSON object with {', '.join(names)}; got {got}")
        return cls(**values)
