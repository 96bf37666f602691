"""A worker: holds the model, checks what requests ask for, and answers them in batches."""

import json
import logging
import math
import multiprocessing
import signal
import sys
import time
from itertools import islice
from pathlib import Path
from queue import Empty
from typing import Any

from zoo import registry
from zoo.allocator import keep_freed_memory
from zoo.serving import checks
from zoo.serving.base import Job, Task
from zoo.serving.checks import short
from zoo.serving.endpoint import Endpoint
from zoo.serving.libraries import HTTPException, LitAPI, LitAPIStatus, LitLoop, LoopResponseType
from zoo.serving.tasks import TASKS

log = logging.getLogger(__name__)

Answer = tuple[int, bytes, int]  # status, JSON, items that were answered together


class ZooAPI(LitAPI):
    """Loads the model in a worker, reads requests and answers batches.

    Args:
        source: a name of the registry, `local-dir:PATH` or `hf-hub:ORG/REPO@REVISION`.
        max_items: texts, images or questions in one request.
        max_tokens: of one text; by default the task's own.
        workers: on this machine, which share its cores.
        max_batch: items that are answered together.
        batch_wait: seconds that the first request of a batch waits for others.
    """

    def __init__(self, source: str, max_items: int, max_tokens: int | None, workers: int, max_batch: int, batch_wait: float) -> None:
        super().__init__(max_batch_size=max_batch, batch_timeout=batch_wait, loop=BatchLoop(), spec=Endpoint())
        self.source, self.max_items, self.max_tokens, self.workers = source, max_items, max_tokens, workers
        self.reports: Any = None  # a connection: the facts that /info shows, or a line that says what is wrong

    def setup(self, device: str) -> None:
        """Loads the model and tells the first process, or ends this one."""
        import torch

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C reaches every process; the first one sees to an end in order
        try:
            self.load(device)
        except (ValueError, FileNotFoundError) as error:
            line = " ".join(str(error).split())
            if self.reports is None:
                log.error("%s", line)
            else:
                self.reports.send(line)
            sys.exit(1)
        torch.seed()  # else every worker would draw the same texts, and after each start again
        if self.reports is not None:
            self.reports.send(self.facts())

    def load(self, device: str) -> None:
        """The model, on a device, and its task."""
        import torch

        if self.workers > 1 and device == "cpu":
            torch.set_num_threads(max(1, torch.get_num_threads() // self.workers))
        keep_freed_memory()
        model = registry.load(self.source).to(device)
        kind = next((kind for method, kind in TASKS.items() if hasattr(model, method)), None)
        if kind is None:
            raise ValueError(f"{self.source} is a {type(model).__name__}, which does not {', '.join(TASKS)}: it cannot be served")
        if self.max_tokens and not kind.default_tokens:
            raise ValueError(f"--max-tokens is for texts; {self.source} is for {kind.name}")
        most = getattr(model, "max_source_tokens", math.inf)
        self.task = kind(model, min(self.max_tokens or kind.default_tokens, most))
        self.task.run([self.task.nothing])  # a model without a tokenizer says so now

    def facts(self) -> dict[str, Any]:
        """What `/info` says of the model."""
        model = self.task.model
        is_folder = self.source.startswith("local-dir:")  # where it is, is nobody's business
        return {
            "name": Path(self.source).name if is_folder else self.source,
            "class": type(model).__name__,
            "task": self.task.name,
            "parameters": sum(p.numel() for p in model.parameters()),
            "fields": self.task.fields,
            **({self.task.one: self.task.parts} if self.task.parts else {}),
            "limits": {"bytes": self.task.default_bytes, "items": self.max_items, **self.task.limits()},
            "batch": {"items": self.max_batch_size, "wait_ms": round(self.batch_timeout * 1000, 3)},
        }

    def read(self, fields: dict[str, Any]) -> Job:
        """A request, checked.

        Raises:
            HTTPException: 400 for wrong fields or options, 422 for items that cannot be used.
        """
        task, one, many = self.task, self.task.one, f"{self.task.one}s"
        checks.names(fields, task.fields)
        if (one in fields) == (many in fields):
            got = "both" if one in fields else "neither"
            raise HTTPException(400, f'send either "{one}" or "{many}" (a list); got {got}')
        attention = checks.truth(fields, "attention")
        options = tuple(task.options(fields).items())
        if one in fields:
            return Job([task.item(fields[one], one)], options, attention, one=True)
        values = fields[many]
        if not isinstance(values, list):
            raise HTTPException(400, f"{many} must be a list; got {short(values)}")
        if not 1 <= len(values) <= self.max_items:
            raise HTTPException(422, f"{many} must hold 1 to {self.max_items:,} {many}; got {len(values):,}")
        return Job([task.item(value, f"{one} {n}") for n, value in enumerate(values, 1)], options, attention, one=False)

    def answer(self, jobs: list[Job]) -> list[Answer]:
        """Answers in the order of the jobs; those with the same options are one batch of the model."""
        groups: dict[tuple, list[int]] = {}
        for n, job in enumerate(jobs):
            groups.setdefault(job.options, []).append(n)
        answers: dict[int, Answer] = {}
        for numbers in groups.values():
            answers.update(zip(numbers, self._together([jobs[n] for n in numbers]), strict=True))
        return [answers[n] for n in range(len(jobs))]

    def _together(self, jobs: list[Job]) -> list[Answer]:
        items = [item for job in jobs for item in job.items]
        try:
            results = iter(self.task.run(items, **dict(jobs[0].options)))
            return [_answer(self.task, job, list(islice(results, len(job.items))), len(items)) for job in jobs]
        except Exception as error:  # whatever it is: the other requests of the batch, and later ones, are still to be answered
            if len(jobs) > 1:
                return [answer for job in jobs for answer in self._together([job])]
            if isinstance(error, ValueError):
                return [_refusal(422, " ".join(str(error).split()))]
            log.exception("a request failed")
            return [_refusal(500, "the model failed on this request; the log of the server says why")]


def _answer(task: Task, job: Job, results: list[Any], together: int) -> Answer:
    shown = [task.shown(result, job.attention) for result in results]
    content = shown[0] if job.one else {"results": shown}
    return 200, json.dumps(content, ensure_ascii=False, allow_nan=False).encode(), together


def _refusal(status: int, detail: str) -> Answer:
    return status, json.dumps({"detail": detail}).encode(), 0


class BatchLoop(LitLoop):
    """Takes requests from the queue and answers them in batches.

    LitServe's own loop asks for new requests without a pause, and an error in one request is the answer to its whole batch.
    """

    def run(self, lit_api: ZooAPI, device: str, worker_id: int, request_queue: Any, transport: Any, *_: Any) -> None:
        """One batch."""

        def send(answer: Answer) -> None:
            self.put_response(transport, queue, uid, answer, LitAPIStatus.OK, LoopResponseType.REGULAR)

        jobs: dict[tuple[int, str], Job] = {}
        items, until = 0, None
        while items < lit_api.max_batch_size:
            try:
                queue, uid, sent, fields = request_queue.get(timeout=1.0 if until is None else max(0.0, until - time.monotonic()))
            except Empty:
                break
            except (EOFError, OSError):  # the process of the queue is gone
                sys.exit()
            if time.monotonic() - sent > lit_api.request_timeout:
                continue  # nobody waits for it
            try:
                job = lit_api.read(fields)
            except HTTPException as error:
                send(_refusal(error.status_code, error.detail))
                continue
            except Exception:  # a mistake of ours, and no reason to leave the others without an answer
                log.exception("a request could not be read")
                send(_refusal(500, "the server could not read this request; its log says why"))
                continue
            jobs[queue, uid] = job
            items += len(job.items)
            until = until or time.monotonic() + lit_api.batch_timeout
        for (queue, uid), answer in zip(jobs, lit_api.answer(list(jobs.values())), strict=True):
            send(answer)
        if not jobs and is_orphan():
            sys.exit()


def is_orphan() -> bool:
    """Whether the process that started this one was killed."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()
