"""Names and addresses of this machine, as servers that trust it have to tell them from others'."""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

_NAMES: Final = frozenset(("localhost", "localhost.localdomain", "ip6-localhost"))


def is_loopback(host: str) -> bool:
    """Whether a name or an address, with its zone or without, always means the machine itself."""
    try:
        return host in _NAMES or ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def is_local_or_address(host_header: str) -> bool:
    """Whether the `Host` of an HTTP request is an IP address or a name of this machine.

    A page of another site can lead a browser here by a name of its own alone (DNS rebinding). Without a `Host` no
    browser asks: HTTP/1.0 knows none.
    """
    try:
        name = urlsplit(f"//{host_header}").hostname or ""
        if name and name not in _NAMES:
            ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
