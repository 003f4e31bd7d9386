"""Where brokers are. PURE."""

from typing import Final, NamedTuple

DEFAULT_PORT: Final = 9092
_LARGEST_PORT: Final = 65535
_LONGEST_LABEL: Final = 63


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_host(host: str) -> bool:
    """Whether it is an address, or could be a name: of labels of 1 to 63 characters (RFC 1035)."""
    if ":" in host:
        return True
    labels = host.removesuffix(".").split(".")
    return all(0 < len(label) <= _LONGEST_LABEL for label in labels) and "\0" not in host


def parse_addresses(servers: str, default_port: int | None = DEFAULT_PORT) -> list[Address]:
    """Addresses from `host:port,[::1]:9093,PLAINTEXT://other`.

    Raises ValueError, also for an address without a port if there is no default.
    """
    addresses = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        host_port = server.rpartition("://")[2]
        host, colon, port = host_port.rpartition(":")
        if default_port is not None and (not colon or (host_port.startswith("[") and host_port.endswith("]"))):
            host, port = host_port, str(default_port)
        host = host.removeprefix("[").removesuffix("]")
        if not _is_host(host) or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= _LARGEST_PORT:
            raise ValueError(f"{server!r} is not an address such as localhost:9092")
        addresses.append(Address(host, int(port)))
    if not addresses:
        raise ValueError("no bootstrap server given")
    return addresses
