"""The socket of the server: bound before the model is loaded, and listening when it is ready."""

import os
import socket

BACKLOG = 2048  # connections not yet accepted


def bound(host: str, port: int) -> socket.socket:
    """A socket bound to the port, not yet listening."""
    # asyncio sets TCP_NODELAY only where a socket names its protocol; without it an answer takes 40 ms more
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name == "posix":  # elsewhere two servers could share the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _taken(host, port, error) from error
    return listener


def listen(listener: socket.socket, host: str, port: int) -> None:
    """Begins to listen."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:  # another server of the same port began to listen in the meantime
        raise _taken(host, port, error) from error


def _taken(host: str, port: int, error: OSError) -> ValueError:
    return ValueError(f"cannot listen on {host} port {port}: {error.strerror}; choose another --port")
