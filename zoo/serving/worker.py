"""A worker: holds the model, checks what requests ask for, and answers them in batches. How requests come and go is not its concern."""

import json
import logging
import math
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.allocator import keep_freed_memory
from zoo.serving import checks
from zoo.serving.base import Job, Task
from zoo.serving.checks import Refused, short
from zoo.serving.limits import BATCH_SHARE
from zoo.serving.tasks import TASKS

log = logging.getLogger(__name__)


class Worker:
    """Loads a model, reads requests and answers batches of their items.

    Args:
        source: a name of the registry, `local-dir:PATH` or `hf-hub:ORG/REPO@REVISION`.
        max_items: texts, images or questions in one request.
        max_tokens: of one text; by default the task's own.
        max_work: of one request, see limits.py.
        device: of torch.
        sharing: workers that share the cores of this machine.
    """

    def __init__(
        self, source: str, max_items: int, max_tokens: int | None, max_work: int, device: str = "cpu", sharing: int = 1
    ) -> None:
        import torch

        self.source, self.max_items, self.max_work = source, max_items, max_work
        if sharing > 1 and device == "cpu":
            torch.set_num_threads(max(1, torch.get_num_threads() // sharing))
        keep_freed_memory()
        model = registry.load(source).to(device)
        kind = next((kind for method, kind in TASKS.items() if hasattr(model, method)), None)
        if kind is None:
            raise ValueError(f"{source} is a {type(model).__name__}, which does not {', '.join(TASKS)}: it cannot be served")
        if max_tokens and not kind.default_tokens:
            raise ValueError(f"--max-tokens is for texts; {source} is for {kind.name}")
        most = getattr(model, "max_source_tokens", math.inf)
        self.task: Task = kind(model, min(max_tokens or kind.default_tokens, most))
        self.task.run([self.task.nothing])  # a model without a tokenizer says so now
        torch.seed()  # else every worker would draw the same texts, and after each start again

    def facts(self) -> dict[str, Any]:
        """What the first process needs: `model` for `/info`, and the `transform` of images as JSON, or None."""
        model = self.task.model
        is_folder = self.source.startswith("local-dir:")  # where it is, is nobody's business
        shown = {
            "name": Path(self.source).name if is_folder else self.source,
            "class": type(model).__name__,
            "task": self.task.name,
            "parameters": sum(p.numel() for p in model.parameters()),
            "fields": self.task.fields,
            **({self.task.one: self.task.parts} if self.task.parts else {}),
            "limits": {
                "bytes": self.task.default_bytes,
                "items": self.max_items,
                "work": self.max_work,
                f"work_of_one_{self.task.one}": self.max_work // BATCH_SHARE,
                **self.task.limits(),
            },
        }
        return {"model": shown, "transform": model.transform.to_json() if self.task.one == "image" else None}

    def read(self, requests: list[dict[str, Any]]) -> list[Job | Refused]:
        """Requests, checked: a job, or what is wrong with it."""
        return [self._tried(fields) for fields in requests]

    def _tried(self, fields: dict[str, Any]) -> Job | Refused:
        try:
            return self._read(fields)
        except Refused as error:
            return error
        except Exception:  # a mistake of ours, and no reason to leave the others without an answer
            log.exception("a request could not be read")
            return Refused(500, "the server could not read this request; its log says why")

    def _read(self, fields: dict[str, Any]) -> Job:
        """A request, checked.

        Raises:
            Refused: 400 for wrong fields or options, 422 for items that cannot be used, 413 for too much work.
        """
        task, one, many = self.task, self.task.one, f"{self.task.one}s"
        checks.names(fields, task.fields)
        if (one in fields) == (many in fields):
            got = "both" if one in fields else "neither"
            raise Refused(400, f'send either "{one}" or "{many}" (a list); got {got}')
        attention = checks.truth(fields, "attention")
        options = task.options(fields)
        if one in fields:
            named = [(fields[one], one)]
        else:
            values = fields[many]
            if not isinstance(values, list):
                raise Refused(400, f"{many} must be a list; got {short(values)}")
            if not 1 <= len(values) <= self.max_items:
                raise Refused(422, f"{many} must hold 1 to {self.max_items:,} {many}; got {len(values):,}")
            named = [(value, f"{one} {n}") for n, value in enumerate(values, 1)]
        items, works = [], []
        for value, name in named:
            items.append(task.item(value, name))
            works.append(1 + task.work(items[-1], **options) + (task.attention_work(items[-1]) if attention else 0))
            if works[-1] > (most := self.max_work // BATCH_SHARE):
                raise Refused(422, f"{name} is {works[-1]:,} units of work; at most {most:,} are allowed; {task.lower}")
            if sum(works) > self.max_work:
                raise Refused(413, f"the request is more than {self.max_work:,} units of work; send fewer {many} at once")
        return Job(items, works, tuple(options.items()), attention, one in fields)

    def answer(self, items: list[tuple[Any, bool]], *options: tuple[str, Any]) -> list[bytes | Refused]:
        """Answers as JSON.

        Args:
            items: each with whether its attention is shown.
            options: of the model's method, with their names.
        """
        try:
            results = self.task.run([item for item, _ in items], **dict(options))
            return [self._json(result, attention) for result, (_, attention) in zip(results, items, strict=True)]
        except Exception as error:  # whatever it is: the other requests of the batch, and later ones, are still to be answered
            if len(items) > 1:
                return [answer for item in items for answer in self.answer([item], *options)]
            if isinstance(error, ValueError):
                return [Refused(422, " ".join(str(error).split()))]
            log.exception("a request failed")
            return [Refused(500, "the model failed on this request; the log of the server says why")]

    def _json(self, result: Any, attention: bool) -> bytes:
        return json.dumps(self.task.shown(result, attention), ensure_ascii=False, allow_nan=False).encode()
