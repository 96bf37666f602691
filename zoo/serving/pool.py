"""Scheduling: work goes to processes in small batches, so that nobody waits long for others' large requests."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from zoo.serving.checks import Refused
from zoo.serving.child import BEAT_SECONDS, Child, Died, Overran
from zoo.serving.limits import SILENT_SECONDS, STARTS, TURN_OF_THE_OLDEST

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Order:
    """Items of a request that a client is waiting for."""

    method: str
    options: tuple[Any, ...]
    items: list[Any]
    works: list[int]
    wait: float  # seconds that the first item of a batch waits for others
    done: asyncio.Future
    arrived: float = field(default_factory=time.monotonic)
    together: int = 0  # items in its largest batch
    alone: bool = False  # a process died of it, or of another item in its batch

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.items)))
        self.results: dict[int, Any] = {}
        self.work = sum(self.works)

    @property
    def group(self) -> tuple[Any, ...]:
        """Equal for orders that may be batched together."""
        return self.method, self.options, self if self.alone else None

    def finish(self, number: int, result: Any) -> None:
        """Takes a result; a rejected item ends the whole order."""
        self.results[number] = result
        if isinstance(result, Refused):
            self.waiting.clear()
        if not self.done.done() and (isinstance(result, Refused) or len(self.results) == len(self.items)):
            self.done.set_result(
                result if isinstance(result, Refused) else [self.results[n] for n in range(len(self.items))]
            )


Batch = list[tuple[Order, int]]  # orders, and indices of their items


def _work(batch: Batch) -> int:
    """The work of a batch, as if all its items were as large as the largest."""
    return len(batch) * max((order.works[number] for order, number in batch), default=0)


class Pool:
    """Processes of one kind, kept alive.

    Args:
        children: the processes.
        max_items: maximum number of items in a batch.
        max_work: maximum work of a batch, as if all its items were as large as the largest; a larger item is a
            batch of its own.
        seconds: time limit of a batch.
        small: while the first lane of a process does more work than this, its second lane does smaller work.
    """

    def __init__(
        self, children: Sequence[Child], max_items: int, max_work: int, seconds: float, small: int = 0
    ) -> None:
        self.children, self.max_items, self.max_work, self.seconds, self.small = (
            children,
            max_items,
            max_work,
            seconds,
            small,
        )
        self.orders: list[Order] = []
        # set to the error if a process cannot be started
        self.failed: asyncio.Future = asyncio.get_running_loop().create_future()
        self._news: asyncio.Future = asyncio.get_running_loop().create_future()  # done when there is work
        self._taken = 0  # batches
        self._running: dict[Child, dict[int, Batch]] = {child: {} for child in children}  # by lane
        self._replacing = {child: asyncio.Lock() for child in children}
        self._tasks: list[asyncio.Task] = []
        self._left = list(children)  # without those that failed to start again

    async def start(self) -> Any:
        """Starts the processes and their scheduling; returns the facts of the first one."""
        found = await asyncio.gather(*(child.start() for child in self.children))
        self._tasks = [
            asyncio.create_task(self._keep(child, lane)) for child in self.children for lane in range(child.lanes)
        ]
        return found[0]

    def stop(self) -> None:
        """Ends the processes."""
        for task in self._tasks:
            task.cancel()
        for child in self.children:
            child.kill()

    def is_well(self) -> bool:
        """Whether a process can work, or is working."""
        return any(child.ready and child.silence() < SILENT_SECONDS / 3 for child in self.children)

    async def run(
        self, method: str, items: list[Any], works: list[int], options: tuple[Any, ...] = (), wait: float = 0.0
    ) -> tuple[list[Any], int]:
        """Results for all items, and how many items were batched together; on cancellation unstarted work is dropped.

        Raises:
            Refused: one of the items was rejected.
        """
        order = Order(method, options, items, works, wait, asyncio.get_running_loop().create_future())
        self.orders.append(order)
        self._give_up()
        self._tell()
        try:
            found = await order.done
        finally:
            order.waiting.clear()
            self._tidy()
        if isinstance(found, Refused):
            raise found
        return found, order.together

    def _tell(self) -> None:
        self._news.set_result(None)
        self._news = asyncio.get_running_loop().create_future()

    def _give_up(self) -> None:
        """Refuses the orders that no remaining process can take."""
        for order in self.orders:
            if not any(child.most is None or order.work <= child.most for child in self._left):
                order.finish(
                    0, Refused(503, "the server ends: its processes cannot be started again; its log says why")
                )

    def _tidy(self) -> None:
        self.orders = [order for order in self.orders if order.waiting]

    async def _keep(self, child: Child, lane: int) -> None:
        """Gives work to one lane of a process as long as it lives, and then replaces it."""
        running = self._running[child]
        while True:
            batch = await self._next(child, lane)
            if batch:
                running[lane] = batch
                self._tell()
            is_alive = batch is not None and await self._done(child, lane, batch)
            running.pop(lane, None)
            if any(order.alone for order in self.orders):  # another lane may have waited for the end of this one
                self._tell()
            if not is_alive:
                await self._replace(child)

    async def _next(self, child: Child, lane: int) -> Batch | None:
        """The next batch; None if the process has ended."""
        while child.ready and child.silence() < SILENT_SECONDS:
            batch, wait = self._batch(child, lane)
            if batch:
                for order, number in batch:
                    order.waiting.remove(number)
                self._tidy()
                self._taken += 1
                return batch
            await asyncio.wait({self._news}, timeout=min(wait, BEAT_SECONDS))
        return None

    def _batch(self, child: Child, lane: int) -> tuple[Batch, float]:
        """The batch that is to be run now; if all still wait for others to join them, none, and the seconds until one
        is to be run.

        The least work comes first, so that a large request delays small ones by at most one batch; but it is not
        delayed forever. What a process may have died of runs while its other lanes rest, so that the blame is right.
        """
        elsewhere = {number: batch for number, batch in self._running[child].items() if number != lane}
        if any(batch[0][0].alone for batch in elsewhere.values()):
            return [], BEAT_SECONDS
        if lane and _work(elsewhere.get(0, [])) <= self.small:
            return [], BEAT_SECONDS
        most, max_work = (self.small, self.small) if lane else (child.most, self.max_work)
        fits = [order for order in self.orders if most is None or order.work <= most]
        by_age = self._taken % TURN_OF_THE_OLDEST == 0
        fits.sort(key=lambda order: order.arrived if by_age else order.work)
        seen, wait = [], BEAT_SECONDS
        for first in fits:
            if first.group in seen or first.alone and elsewhere:
                continue
            seen.append(first.group)
            batch, remaining = self._joined([order for order in fits if order.group == first.group], max_work)
            if remaining <= 0:
                return batch, 0.0
            wait = min(wait, remaining)
        return [], wait

    def _joined(self, orders: list[Order], max_work: int) -> tuple[Batch, float]:
        """A batch of orders of one group, and the seconds for which it waits for others."""
        batch: Batch = []
        largest = 0
        max_items = 1 if orders[0].alone else self.max_items
        for order in orders:
            for number in order.waiting:
                largest = max(largest, order.works[number])
                if batch and (len(batch) == max_items or (len(batch) + 1) * largest > max_work):
                    return batch, 0.0
                batch.append((order, number))
        if not batch:  # of orders that have just been refused
            return batch, BEAT_SECONDS
        if len(batch) >= max_items:
            return batch, 0.0
        return batch, min(order.arrived + order.wait for order in orders) - time.monotonic()

    async def _done(self, child: Child, lane: int, batch: Batch) -> bool:
        """Runs a batch; returns whether the process survived it."""
        order = batch[0][0]
        for each, _ in batch:
            each.together = max(each.together, len(batch))
        try:
            items = [each.items[number] for each, number in batch]
            results = await child.call(order.method, items, *order.options, seconds=self.seconds, lane=lane)
        except Overran:
            log.error("a process took longer than %g s and is replaced", self.seconds)
            results = [Refused(504, f"no answer within {self.seconds:g} s; send less at once")] * len(batch)
            is_alive = False
        except Died:
            log.error("a process has died and is replaced")
            is_alive = False
            if len(batch) > 1 or not order.alone:
                for each, number in batch:
                    if not each.done.done():
                        each.alone = True
                        each.waiting.append(number)
                        self.orders.append(each)
                self.orders = list(dict.fromkeys(self.orders))
                return False
            results = [Refused(500, "the model's process died of this request; see the server's log")]
        except Exception:
            log.exception("a batch failed")
            results = [Refused(500, "the server failed on this request; see its log")] * len(batch)
            is_alive = True
        else:
            is_alive = True
        for (each, number), result in zip(batch, results, strict=True):
            each.finish(number, result)
        return is_alive

    async def _replace(self, child: Child) -> None:
        async with self._replacing[child]:  # its lanes notice at the same time
            if child.ready and child.silence() < SILENT_SECONDS:
                return
            dies = reason = "a process of the server dies when it is started; is there enough memory?"
            for attempt in range(1, STARTS + 1):
                try:
                    await child.start()
                    return
                except (ValueError, Died) as error:
                    log.error("a process could not be started: %s", str(error) or "it died")
                    reason = str(error) or dies
                await asyncio.sleep(attempt)
            self._left.remove(child)
            self._give_up()
            if not self.failed.done():
                self.failed.set_result(ValueError(reason))
            await asyncio.Event().wait()  # the server ends
