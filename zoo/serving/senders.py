"""Who may ask: pages of which hosts, and with which key."""

import hmac
import ipaddress
from urllib.parse import urlsplit

from zoo.serving.checks import Refused, short

PREFLIGHT = {  # what browsers ask before a page of another host may send a request
    "Access-Control-Allow-Methods": "GET, HEAD, POST",
    "Access-Control-Allow-Headers": "Content-Type, X-API-Key",
    "Access-Control-Max-Age": "600",
}


class Senders:
    """Who may ask.

    Args:
        key: that each request must have; None: none.
        hosts: further names of the server, and hosts whose pages may call it; "*" allows any.
    """

    def __init__(self, key: str | None, hosts: frozenset[str]) -> None:
        self.key, self.hosts = key, hosts

    def check(self, headers: dict[str, str]) -> None:
        """Rejects web pages of other hosts."""
        host, origin = headers.get("host"), headers.get("origin")
        if host is not None and not self._is_ours(name := host_of(f"//{host}")):
            raise Refused(403, f"this server is not called {short(name)}; allow that name with --allow-host")
        if (
            origin is not None
            and origin.partition("://")[2] != host
            and "*" not in self.hosts
            and host_of(origin) not in self.hosts
        ):
            raise Refused(403, f"pages of {short(origin)} may not call this server; allow them with --allow-host")

    def check_key(self, headers: dict[str, str]) -> None:
        """Rejects requests without the key."""
        if self.key is not None and not hmac.compare_digest(
            headers.get("x-api-key", "").encode("latin-1"), self.key.encode()
        ):
            raise Refused(401, "send the key of this server in the header X-API-Key")

    def _is_ours(self, name: str) -> bool:
        """An IP address is always allowed: the danger is a foreign name that was made to resolve to this server."""
        if "*" in self.hosts or name in self.hosts or name == "localhost":
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def shared_with(origin: str | None) -> dict[str, str]:
    """Lets the page of an accepted request, which may be of another host, read the answer."""
    return {} if origin is None else {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}


def host_of(address: str) -> str:
    """The host of an address, without its port."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
