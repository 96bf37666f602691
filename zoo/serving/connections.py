"""Connections that uvicorn would keep: idle ones, those with incomplete headers, and too many of them."""

from typing import Any, cast

from zoo.serving.limits import IDLE_SECONDS, MAX_CONNECTIONS, READING_SECONDS


def protocol() -> type:
    """The protocol class of a connection, for uvicorn, which is imported only here."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Connection(H11Protocol):
        """A connection that records since when it has had no request."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.idle_since = self.loop.time()
            if len(self.connections) > MAX_CONNECTIONS:
                own = cast("set[Connection]", self.connections)  # which uvicorn declares for any protocol
                # reading is paused where a client has sent another request before it has its answer
                waiting = [each for each in own if each.is_idle() or each.cycle.more_body or each.flow.read_paused]
                oldest = min(waiting, key=lambda each: each.idle_since)
                self.connections.discard(oldest)  # immediately: more may arrive before it is closed
                oldest.transport.abort()

        def on_response_complete(self) -> None:
            self.idle_since = self.loop.time()
            super().on_response_complete()

        def is_idle(self) -> bool:
            """Whether it is waiting for headers, or for its client to read, even where another request has begun."""
            return self.cycle is None or self.cycle.response_complete or self.flow.write_paused

        def is_late(self) -> bool:
            """Whether it has waited too long; a client that is still reading an answer gets more time."""
            patience = READING_SECONDS if self.transport.get_write_buffer_size() else IDLE_SECONDS
            return self.is_idle() and self.loop.time() - self.idle_since > patience

    return Connection


async def close_late(connections: set[Any]) -> None:
    """Closes connections that have been idle for too long."""
    for connection in [each for each in connections if each.is_late()]:
        connection.transport.abort()
