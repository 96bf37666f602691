"""A worker: holds the model, validates requests, and answers them in batches; it knows nothing about HTTP."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.serving import checks
from zoo.serving.base import Form, Job
from zoo.serving.checks import Refused, short
from zoo.serving.forms import FORMS
from zoo.serving.limits import BATCH_SHARE
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.modules import imported

log = logging.getLogger(__name__)


Opener = Callable[[str, str, int], tuple[Any, dict[str, Any]]]


def of_torch(source: str, device: str, sharing: int, precision: str = "fp32") -> tuple[Any, dict[str, Any]]:
    """The model of a weight, on a device, with its share of the cores and in a precision, and facts for `/info`."""
    import torch

    if sharing > 1 and device == "cpu":
        torch.set_num_threads(max(1, torch.get_num_threads() // sharing))
    model = registry.load(source).to(device)
    model.precision = precision
    torch.seed()  # else every worker would sample the same texts, and again after each start
    return model, {"class": type(model).__name__, "parameters": sum(p.numel() for p in model.parameters())}


class Worker:
    """Loads a model, validates requests and answers batches of their items.

    Args:
        source: a name of the registry, `local-dir:PATH` or `hf-hub:ORG/REPO@REVISION`.
        max_items: maximum number of texts, images or questions in one request.
        max_tokens: maximum length of one text; by default the task's.
        max_work: maximum work of one request, see limits.py.
        device: torch device.
        sharing: number of workers that share this machine's cores.
        open_model: as `of_torch`.
    """

    def __init__(
        self,
        source: str,
        max_items: int,
        max_tokens: int | None,
        max_work: int,
        device: str = "cpu",
        sharing: int = 1,
        open_model: Opener = of_torch,
    ) -> None:
        self.source, self.max_items, self.max_work = source, max_items, max_work
        keep_freed_memory()
        with imported([]):  # what --import named, in this process too
            model, self._about = open_model(source, device, sharing)
        form = FORMS.get(model.task.name)
        if form is None:
            raise ValueError(
                f"{source} is for {model.task.name} and cannot be served; models for {', '.join(FORMS)} can"
            )
        if max_tokens and not form.default_tokens:
            raise ValueError(f"--max-tokens is for texts; {source} is for {form.name}")
        tokens = max_tokens or form.default_tokens
        self.form: Form = form(model, min(tokens, getattr(model, "max_source_tokens", tokens)))
        self.form.run([self.form.probe])  # a model without a tokenizer, or with a broken search, fails now

    def facts(self) -> dict[str, Any]:
        """Facts for the first process: `model` for `/info`, and the `transform` of images as JSON, or None."""
        model = self.form.model
        is_folder = self.source.startswith(registry.LOCAL_DIR)  # its path stays private
        shown = {
            "name": Path(self.source).name if is_folder else self.source,
            **self._about,
            "task": self.form.name,
            "fields": self.form.fields,
            **({self.form.one: self.form.parts} if self.form.parts else {}),
            "limits": {
                "bytes": self.form.default_bytes,
                "items": self.max_items,
                "work": self.max_work,
                f"work_of_one_{self.form.one}": self.max_work // BATCH_SHARE,
                **self.form.limits(),
            },
        }
        return {"model": shown, "transform": model.transform.to_json() if self.form.one == "image" else None}

    def read(self, requests: list[dict[str, Any]]) -> list[Job | Refused]:
        """Validates requests: for each a job, or the reason for its rejection."""
        return [self._tried(fields) for fields in requests]

    def _tried(self, fields: dict[str, Any]) -> Job | Refused:
        try:
            return self._read(fields)
        except Refused as error:
            return error
        except Exception:  # a bug of ours; the other requests must still be answered
            log.exception("a request could not be read")
            return Refused(500, "the server could not read this request; see its log")

    def _read(self, fields: dict[str, Any]) -> Job:
        """Validates a request.

        Raises:
            Refused: 400 for wrong fields or options, 422 for items that cannot be used, 413 for too much work.
        """
        form, one, many = self.form, self.form.one, f"{self.form.one}s"
        checks.names(fields, form.fields)
        if (one in fields) == (many in fields):
            got = "both" if one in fields else "neither"
            raise Refused(400, f'send either "{one}" or "{many}" (a list); got {got}')
        attention = checks.truth(fields, "attention")
        options = form.options(fields)
        if one in fields:
            named = [(fields[one], one)]
        else:
            values = fields[many]
            if not isinstance(values, list):
                raise Refused(400, f"{many} must be a list; got {short(values)}")
            if not 1 <= len(values) <= self.max_items:
                raise Refused(422, f"{many} must have 1 to {self.max_items:,} {many}; got {len(values):,}")
            named = [(value, f"{one} {n}") for n, value in enumerate(values, 1)]
        items, works = [], []
        for value, name in named:
            items.append(form.item(value, name))
            works.append(1 + form.work(items[-1], **options) + (form.attention_work(items[-1]) if attention else 0))
            if works[-1] > (most := self.max_work // BATCH_SHARE):
                raise Refused(422, f"{name} is {works[-1]:,} units of work; at most {most:,} are allowed; {form.lower}")
            if sum(works) > self.max_work:
                raise Refused(
                    413, f"the request is more than {self.max_work:,} units of work; send fewer {many} at once"
                )
        return Job(items, works, tuple(options.items()), attention, one in fields)

    def answer(self, items: list[tuple[Any, bool]], *options: tuple[str, Any]) -> list[bytes | Refused]:
        """Answers as JSON.

        Args:
            items: each with a flag whether its attention is returned.
            options: keyword arguments of the model's method.
        """
        try:
            results = self.form.run([item for item, _ in items], **dict(options))
            return [self._json(result, attention) for result, (_, attention) in zip(results, items, strict=True)]
        except Exception as error:  # any error: the other requests of the batch, and later ones, must still be answered
            if len(items) > 1:
                return [answer for item in items for answer in self.answer([item], *options)]
            if isinstance(error, ValueError):
                return [Refused(422, " ".join(str(error).split()))]
            log.exception("a request failed")
            return [Refused(500, "the model failed on this request; see the server's log")]

    def _json(self, result: Any, attention: bool) -> bytes:
        return json.dumps(self.form.shown(result, attention), ensure_ascii=False, allow_nan=False).encode()
