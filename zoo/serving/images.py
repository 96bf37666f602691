"""Images of requests, decoded by separate processes whose time and memory are bounded against malicious files."""

import base64
import os
from dataclasses import dataclass
from typing import Any

from zoo.serving.checks import Refused
from zoo.vision.images import MAX_PIXELS, ImageError, ImageTransform, decoding_work, open_image

try:
    import resource
except ImportError:  # Windows has no memory limit
    resource = None


@dataclass(frozen=True)
class Attached:
    """Replaces an image in a request; the image stays in the first process."""

    number: int
    name: str = ""  # what messages call it


Content = str | bytes  # base64, or the bytes of a file
Named = tuple[Content, str]  # with its name in messages


def detach(fields: dict[str, Any]) -> tuple[dict[str, Any], list[Content]]:
    """The fields of a request with `Attached` in place of its images, and these images."""
    images: list[Content] = []

    def held(value: Any) -> Any:
        if not isinstance(value, (str, bytes)):
            return value  # rejected with the other fields
        images.append(value)
        return Attached(len(images) - 1)

    fields = dict(fields)
    if "image" in fields:
        fields["image"] = held(fields["image"])
    if isinstance(fields.get("images"), list):
        fields["images"] = [held(value) for value in fields["images"]]
    return fields, images


def check_total(works: list[int], names: list[str]) -> None:
    """Rejects an image, or images together, that take too long to decode, given their `Decoder.measure`."""
    for work, name in zip(works, names, strict=True):
        if work > MAX_PIXELS:
            raise Refused(
                422,
                f"{name} takes as long to decode as {work:,} pixels of a plain JPEG; at most {MAX_PIXELS:,} are "
                "allowed; make it smaller, or save it as a plain JPEG",
            )
    if (total := sum(works)) > MAX_PIXELS:
        raise Refused(
            413,
            f"the images take as long to decode as {total:,} pixels of a plain JPEG; at most {MAX_PIXELS:,} are "
            "allowed in one request; send fewer or smaller ones",
        )


class Decoder:
    """Decodes files to a model's input pixels.

    Args:
        transform: the model's, as JSON.
        memory: additional bytes that this process may allocate; None for no limit.
        niceness: of this process, 0 to 19: higher values give way to others.
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
        """Nothing to report."""

    def measure(self, images: list[Named]) -> list[int | Refused]:
        """Decoding cost, in pixels of a plain JPEG."""
        return [self._tried(self._measure, *image) for image in images]

    def pixels(self, images: list[Named]) -> list[bytes | Refused]:
        """RGB pixels at the model's size: small while waiting, and the same result."""
        return [self._tried(self._pixels, *image) for image in images]

    def _tried(self, method: Any, content: Content, name: str) -> Any:
        try:
            return method(_file(content, name), name)
        except Refused as error:
            return error
        except ImageError as error:
            return Refused(422, str(error))
        except MemoryError:
            return Refused(422, f"{name}: decoding needs more memory than available; make the image smaller")

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
            400, f"{name} is not base64 ({error}); send the bytes of an image file in base64, not a path"
        ) from error
