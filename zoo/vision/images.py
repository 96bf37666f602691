"""Images: opened in any format, and transformed to a model's input pixels."""

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

if TYPE_CHECKING:  # neither `zoo.runtime` nor the image decoders of `zoo serve` load torch
    from torch import Tensor

MAX_PIXELS = 64_000_000  # width times height of the largest image that is decoded: 256 MB in memory
MAX_SCANS = 100  # passes over the pixels of a JPEG; cameras write 1, progressive files have about 10

# Pixel formats only: for others Pillow starts a program (EPS), or the size differs from the header (ICO).
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "MPO", "PPM", "JPEG2000", "AVIF")
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".jp2", ".avif"})  # of folders
OTHER_SUFFIXES = frozenset({".heic", ".heif", ".svg", ".ico", ".psd", ".jxl", ".raw", ".dng", ".cr2", ".nef", ".arw"})
_RESIZES = ("squash", "crop")
_DETAIL = 1280  # minimum side in pixels of a large JPEG that is decoded at reduced size
# Approximate maximum time per pixel, relative to a plain JPEG (20 ns).
_FAST, SLOWNESS_OF_OTHERS, _SLOWNESS_OF_PLAIN_TEXT = ("BMP", "GIF"), 3, 60
_FREE_SCANS = 10  # scans of a progressive JPEG that take about as long as a plain one
# Of a JPEG: a marker with content. 0xFF also precedes 0 (a byte of the pixels), itself, and markers without content.
_JPEG_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])", re.DOTALL)
_END_OF_IMAGE, _START_OF_SCAN = 0xD9, 0xDA


class ImageError(ValueError):
    """An image that cannot be used; the message is one line with its name and the problem."""


def open_image(
    source: str | os.PathLike | bytes | PIL.Image.Image, name: str | None = None, side: int | None = None
) -> PIL.Image.Image:
    """An upright RGB image from a user's input.

    The EXIF orientation is applied, the first frame of an animation is used, transparent parts become white, 16 bits
    are scaled to 8. The limits `MAX_PIXELS` and `MAX_SCANS` are checked before any pixel is decoded.

    Args:
        source: a path, the bytes of a file, or a PIL image, which is not modified.
        name: name in messages; by default the path, if there is one.
        side: side in pixels that the image is needed for. A large JPEG is then decoded at 1/2, 1/4 or 1/8 of its
            size, which saves time and memory: never below four times this side, nor below 1,280.

    Returns:
        a new image of mode RGB without metadata.

    Raises:
        ImageError: no such file, not an image, a damaged image, or too many pixels.
        TypeError: `source` is of another type.
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
    """Decoding cost of an image, estimated from its header, in pixels of a plain JPEG.

    Args:
        content: content of an image file.
        name: name in messages.

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
            slowness = 1 if image.format in _FAST else SLOWNESS_OF_OTHERS
        return round(width * height * slowness)


def open_file(path: str | os.PathLike, name: str) -> BinaryIO:
    """Opens an image file for reading.

    Raises:
        ImageError: no such file, or it cannot be read.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would block
            raise ImageError(f"{name}: {'a folder' if os.path.isdir(path) else 'not a regular file'}; give an image")
        return open(path, "rb")
    except ImageError:
        raise
    except FileNotFoundError as error:
        raise ImageError(f"{name}: no such file") from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise ImageError(f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


def check_header(file: BinaryIO, name: str) -> None:
    """Checks that a file is an image without too many pixels, without decoding it; later damage is not detected.

    Args:
        file: an image file.
        name: name in messages.

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
        with warnings.catch_warnings():  # they are errors here, or do not concern the pixels
            warnings.simplefilter("ignore")
            image = PIL.Image.open(file, formats=formats)
    except PIL.UnidentifiedImageError as error:
        raise ImageError(f"{name}: not an image in a known format; give one of {', '.join(formats)}") from error
    except PIL.Image.DecompressionBombError as error:
        raise _too_large(name, "") from error
    except Exception as error:  # third-party decoders may raise anything on damaged files
        raise _damaged(name, error) from error
    _check_size(image, name)
    if image.format in ("JPEG", "MPO") and (scans := _scans(file)) > MAX_SCANS:
        raise ImageError(
            f"{name}: {scans:,} scans, more than the limit of {MAX_SCANS}; save the image again as a plain JPEG"
        )
    return image


def _scans(file: BinaryIO) -> int:
    """Number of passes that a JPEG makes over all pixels; a small file may ask for thousands."""
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
    image.info = {}  # so that it is not rotated again
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
        return ImageError(f"{name}: decoding needs more memory than available; make the image smaller")
    reason = " ".join(str(error).split()) or type(error).__name__
    return ImageError(f"{name}: the image is damaged and cannot be decoded ({reason}); replace the file")


def _upright(image: PIL.Image.Image) -> PIL.Image.Image:
    try:
        return PIL.ImageOps.exif_transpose(image)
    except Exception:  # of many classes: metadata may be damaged where the pixels are not
        return image


def _rgb(image: PIL.Image.Image) -> PIL.Image.Image:
    if image.mode[0] in "IF":  # 16 bits, 32 bits and floating point: Pillow would clip them at 255
        return _grey(image).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = PIL.Image.new("RGB", image.size, "white")
        white.paste(image, mask=image.getchannel("A"))
        return white
    return image.convert("RGB")


def _grey(image: PIL.Image.Image) -> PIL.Image.Image:
    """8 bits from 16 or from numbers without a stated range, which is inferred from the values: 1, 8 or 16 bits."""
    # 4 bytes per pixel, so everything below is in place
    values = np.nan_to_num(np.array(image, dtype=np.float32), copy=False)
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
    """The transform from an image to a model's input; saved next to the weights.

    Attributes:
        size: side of the square in pixels.
        resize: "squash": the whole frame, whatever its shape; "crop": the shorter side becomes `size`, and the
            centre of the longer one is kept.
        mean: subtracted from red, green and blue, which are in [0, 1].
        std: divisor after that.
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
            low = 1e-4 if positive else -1e4  # smaller ones would exceed the numeric range of a network
            if not numbers or len(values) != 3 or not all(low <= x <= 1e4 for x in values):
                kind = "positive numbers" if positive else "numbers"
                limits = f"(allowed: {low:g} to {1e4:g})"
                raise ValueError(
                    f"{name} must be three {kind}, for red, green and blue; got {reprlib.repr(values)} {limits}"
                )
            object.__setattr__(self, name, tuple(map(float, values)))

    def pixels(self, image: PIL.Image.Image) -> "Tensor":
        """The image at the model's size; one of this size is unchanged.

        Args:
            image: preferably from `open_image`.

        Returns:
            (3, size, size) uint8.
        """
        import torch

        return torch.from_numpy(self.array(image))

    def array(self, image: PIL.Image.Image) -> np.ndarray:
        """The same as `pixels`, in NumPy and without torch."""
        return np.asarray(self.resized(image)).transpose(2, 0, 1).copy()

    def resized(self, image: PIL.Image.Image) -> PIL.Image.Image:
        """The same as a PIL image."""
        if image.mode != "RGB":
            image = open_image(image)
        if image.size == (self.size, self.size):
            return image
        # Crop first: a long strip resized to the height of the square would not fit into memory.
        return self.framed(image).resize((self.size, self.size), Resampling.BICUBIC)

    def framed(self, image: PIL.Image.Image) -> PIL.Image.Image:
        """The part of an image that the model sees, in its own size and shape."""
        if self.resize == "squash":
            return image
        width, height = image.size
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        return image.crop((left, top, left + side, top + side))

    def normalize(self, pixels: "Tensor") -> "Tensor":
        """The encoder's input.

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
            ValueError: the text is not a JSON object, has other keys, or a value is not allowed.
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
