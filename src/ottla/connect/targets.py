"""The addresses that HTTP connectors may reach.

Every client that may create a connector chooses its URL. That must not open the network behind the worker: services
that trust whatever comes from the same machine, a cloud's metadata at 169.254.169.254, databases. By default only
public addresses are allowed; `http.allowed.targets` of the worker, which no connector can set, allows more:

    10.1.2.3, 10.1.0.0/16, fd00::/8      these
    billing.internal                     what this name leads to, if that is a private address
    *                                    everything

The address is checked to which a connection is made, after the name was resolved: a name that leads elsewhere a moment
later (DNS rebinding), and every redirect, is checked as well.
"""

import ipaddress
from collections.abc import Iterator
from typing import Final

from ottla.connect.errors import ConfigError

ALLOWED: Final = "http.allowed.targets"
_EVERYTHING: Final = "*"
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv4 behind a translator (RFC 6052)."""

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


class Targets:
    """allowed: the value of the setting. Raises ConfigError."""

    def __init__(self, allowed: str) -> None:
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._names: set[str] = set()
        self.everything = False
        for each in filter(None, map(str.strip, allowed.split(","))):
            if each == _EVERYTHING:
                self.everything = True
            elif each[0].isdigit() or ":" in each or "/" in each:
                self._networks.append(_network(each))
            else:
                self._names.add(_name(each))

    def refusal(self, host: str, address: str) -> str | None:
        """Why a connection to an address, that a URL's host leads to, may not be made; None if it may."""
        if self.everything:
            return None
        try:
            found = list(_meant(ipaddress.ip_address(address.partition("%")[0])))
        except ValueError:
            return f"{address} is no address"
        kinds = [kind for ip in found if not self._is_allowed(ip) and (kind := _kind(ip)) is not None]
        if not kinds or (_name(host) in self._names and set(kinds) == {"private"}):
            return None
        where = host if host == address else f"{host} ({address})"
        return (
            f"{where} is {_ARTICLES[kinds[0]]} address, which this worker lets no connector reach: set {ALLOWED} in "
            "the worker's configuration to the addresses that connectors may reach beside public ones"
        )

    def _is_allowed(self, ip: Ip) -> bool:
        return any(ip.version == network.version and ip in network for network in self._networks)


_ARTICLES: Final = {
    "loopback": "a loopback",
    "link-local": "a link-local",
    "private": "a private",
    "special": "a special",
}


def _meant(ip: Ip) -> Iterator[Ip]:
    """The address, and the one of IPv4 that it carries."""
    yield ip
    if isinstance(ip, ipaddress.IPv6Address):
        carried = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _TRANSLATED:
            carried = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        if carried is not None:
            yield carried


def _kind(ip: Ip) -> str | None:
    """None for a public address. An address that carries one of IPv4 is judged by that."""
    if isinstance(ip, ipaddress.IPv6Address) and (ip.ipv4_mapped or ip in _TRANSLATED):
        return None
    if ip.is_loopback:
        return "loopback"
    if ip.is_link_local:
        return "link-local"
    if ip.is_multicast or ip.is_unspecified or ip.is_reserved:
        return "special"
    return None if ip.is_global else "private"


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError as wrong:
        raise ConfigError(f"{ALLOWED}: {text!r} is no address, network or name of a host: {wrong}", ALLOWED) from None


def _name(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()
