"""The images of requests: decoded by processes of their own, which a harmful file can neither keep busy nor fill up for
long.
"""

import base64
import os
from dataclasses import dataclass
from typing import Any

from zoo.serving.checks import Refused
from zoo.vision.images import MAX_PIXELS, ImageError, ImageTransform, decoding_work, open_image

try:
    import resource
except ImportError:  # Windows has no limit of memory
    resource = None


@dataclass(frozen=True)
class Attached:
    """Stands in a request for an image that stays in the first process."""

    number: int
    name: str = ""  # what messages call it


Content = str | bytes  # base64, or the bytes of a file
Named = tuple[Content, str]  # with what messages call it


def detach(fields: dict[str, Any]) -> tuple[dict[str, Any], list[Content]]:
    """The fields of a request with `Attached` in place of its images, and these."""
    images: list[Content] = []

    def held(value: Any) -> Any:
        if not isinstance(value, (str, bytes)):
            return value  # is refused with the other fields
        images.append(value)
        return Attached(len(images) - 1)

    fields = dict(fields)
    if "image" in fields:
        fields["image"] = held(fields["image"])
    if isinstance(fields.get("images"), list):
        fields["images"] = [held(value) for value in fields["images"]]
    return fields, images


def check_total(works: list[int]) -> None:
    """Refuses images that together take too long to decode, each with what `Decoder.measure` gave."""
    if (total := sum(works)) > MAX_PIXELS:
        raise Refused(
            413,
            f"the images take as long to decode as {total:,} pixels of a plain JPEG; at most {MAX_PIXELS:,} are "
            "allowed in one request; "
            "send fewer or smaller ones",
        )


class Decoder:
    """Makes of files the pixels that a model is given.

    Args:
        transform: of the model, as JSON.
        memory: bytes that this process may take in addition to those it has; None for no limit.
        niceness: of this process, 0 to 19: the higher, the more others come first.
    """

    def __init__(self, transform: str, memory: int | None = None, niceness: int = 0) -> None:
        self.transform = ImageTransform.from_json(transform)
        if niceness and hasattr(os, "nice"):
            os.nice(niceness)
        if memory is not None:
            self._limit_memory(memory)

    @staticmethod
    def _limit_memory(memory: int) -> None:
        if resource is None:
            return
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                taken = int(file.read().split()[0]) * resource.getpagesize()
        except FileNotFoundError:  # not Linux
            return
        resource.setrlimit(resource.RLIMIT_AS, (taken + memory, taken + memory))

    def facts(self) -> None:
        """Nothing to tell."""

    def measure(self, images: list[Named]) -> list[int | Refused]:
        """About how many pixels of a plain JPEG take as long to decode."""
        return [self._tried(self._measure, *image) for image in images]

    def pixels(self, images: list[Named]) -> list[bytes | Refused]:
        """Red, green and blue of all pixels, at the size of the model: what waits for it is small, and comes out the
        same.
        """
        return [self._tried(self._pixels, *image) for image in images]

    def _tried(self, method: Any, content: Content, name: str) -> Any:
        try:
            return method(_file(content, name), name)
        except Refused as error:
            return error
        except ImageError as error:
            return Refused(422, str(error))
        except MemoryError:
            return Refused(422, f"{name}: takes more memory than there is; make the image smaller")

    def _measure(self, content: bytes, name: str) -> int:
        return decoding_work(content, name)

    def _pixels(self, content: bytes, name: str) -> bytes:
        return self.transform.resized(open_image(content, name, self.transform.size)).tobytes()


def _file(content: Content, name: str) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return base64.b64decode("".join(content.split()), validate=True)
    except ValueError as error:
        raise Refused(
            400, f"{name} is not base64 ({error}); send the bytes of an image file in base64, no path"
        ) from error
