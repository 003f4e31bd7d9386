"""PURE. `zookeeper.connect`: the servers of an ensemble, and the path below which a cluster keeps everything.

one:2181,two:2181,[::1]:2181/kafka/orders
"""

from typing import Final, NamedTuple

from ottla.errors import InvalidConfig

DEFAULT_PORT: Final = 2181


class ZooKeeperAddress(NamedTuple):
    """Where the metadata is kept; `root` is empty or a path that does not end in a slash."""

    servers: tuple[tuple[str, int], ...]
    root: str

    @property
    def hosts(self) -> str:
        """The servers, as ZooKeeper's clients want them."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)

    def __str__(self) -> str:
        return f"{self.hosts}{self.root}"


def parse_address(text: str) -> ZooKeeperAddress:
    """Read a `zookeeper.connect`. Raises `InvalidConfig` with the reason."""
    listed, slash, path = text.strip().partition("/")
    servers = tuple(_server(part.strip(), text) for part in listed.split(",") if part.strip())
    if not servers:
        raise _invalid(text, "it names no server")
    names = path.rstrip("/").split("/") if path.rstrip("/") else []
    if any(name in ("", ".", "..") for name in names):
        raise _invalid(text, f"{slash}{path} is no path of ZooKeeper")
    return ZooKeeperAddress(servers, "".join(f"/{name}" for name in names))


def _server(part: str, text: str) -> tuple[str, int]:
    host, colon, port = part.rpartition(":")
    if not colon or part.endswith("]"):
        host, port = part, str(DEFAULT_PORT)
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16
    if not host or not is_port or (":" in host and not bracketed):
        raise _invalid(text, f"{part} is not host:port")
    return host, int(port)


def _invalid(text: str, problem: str) -> InvalidConfig:
    return InvalidConfig(f"Invalid value {text} for configuration zookeeper.connect: {problem}")
