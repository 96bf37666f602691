"""What uvicorn leaves open: connections that send nothing, or never the end of their headers, and too many of them."""

from typing import Any, cast

from zoo.serving.limits import IDLE_SECONDS, MAX_CONNECTIONS, READING_SECONDS


def protocol() -> type:
    """The protocol of a connection, for uvicorn, which is not imported before."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Connection(H11Protocol):
        """A connection that knows since when it has no request under way."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.idle_since = self.loop.time()
            if len(self.connections) > MAX_CONNECTIONS:
                own = cast("set[Connection]", self.connections)  # which uvicorn declares for any protocol
                waiting = [each for each in own if each.is_idle() or each.cycle.more_body]
                oldest = min(waiting, key=lambda each: each.idle_since)
                self.connections.discard(oldest)  # at once: there may be more new ones before it is gone
                oldest.transport.abort()

        def on_response_complete(self) -> None:
            self.idle_since = self.loop.time()
            super().on_response_complete()

        def is_idle(self) -> bool:
            """Whether it waits for headers, or its client for nothing."""
            return self.cycle is None or self.cycle.response_complete

        def is_late(self) -> bool:
            """Whether it has been so for too long; who still reads an answer gets more time."""
            patience = READING_SECONDS if self.transport.get_write_buffer_size() else IDLE_SECONDS
            return self.is_idle() and self.loop.time() - self.idle_since > patience

    return Connection


async def close_late(connections: set[Any]) -> None:
    """Closes those that have been idle for too long."""
    for connection in [each for each in connections if each.is_late()]:
        connection.transport.abort()
