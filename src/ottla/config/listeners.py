"""The listeners in a node's settings: those of the broker, and those of its quorum's controllers. PURE."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from ottla.config.setting import invalid_value
from ottla.errors import InvalidConfig

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Listener(NamedTuple):
    """An address to listen at or to advertise; an empty `host` means every interface, port 0 a free one."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def controller_protocols(
    given: Mapping[str, str], protocols: Mapping[str, str], names: Collection[str]
) -> dict[str, str]:
    """The security protocols of the controllers' listeners: in plain text unless some listener has another one.

    `protocols` are those in `listener.security.protocol.map`, `given` all settings that were given.
    """
    own = {word.partition("://")[0].upper() for word in words(given.get("listeners", ""))}
    found = {name: protocols[name] for name in names if name in protocols}
    is_protected = not {*SECURITY_PROTOCOLS[1:]}.isdisjoint({*own, *names})
    if "listener.security.protocol.map" in given or is_protected:
        return found
    return dict.fromkeys(names, SECURITY_PROTOCOLS[0]) | found


def listeners_in(
    setting: str, text: str, protocols: Mapping[str, str], of_controllers: Collection[str], *, left_out: bool = True
) -> tuple[Listener, ...]:
    """Those that the setting names, without the listeners of controllers; with `left_out` false those alone.

    Raises `InvalidConfig`, which names the wrong one.
    """
    found: dict[str, Listener] = {}
    addresses: set[tuple[str, int]] = set()
    for word in words(text):
        name, separator, address = word.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not name or not colon or not port.isdecimal() or int(port) > 65535:
            raise InvalidConfig(f"{setting}: {word!r} is not of the form NAME://host:port")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        name = name.upper()
        if (name in of_controllers) is left_out:
            continue
        protocol = protocols.get(name)
        if protocol is None:
            if not left_out:
                continue  # nothing listens there unless this node is a controller: see `ottla.config.quorum`
            raise InvalidConfig(
                f"{setting}: listener {name} has no protocol; add {name}:PLAINTEXT to listener.security.protocol.map"
            )
        if name in found:
            raise InvalidConfig(f"{setting}: there are two listeners named {name}")
        if int(port) != 0 and (host, int(port)) in addresses and setting == "listeners":
            raise InvalidConfig(f"{setting}: two listeners at port {port}")
        addresses.add((host, int(port)))
        found[name] = Listener(name, host, int(port), protocol)
    return tuple(found.values())


def words(text: str) -> tuple[str, ...]:
    """The words between commas."""
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def pairs(name: str, text: str) -> dict[str, str]:
    """The `key:value` pairs in the setting `name`. Raises `InvalidConfig`."""
    found: dict[str, str] = {}
    for word in words(text):
        key, colon, value = word.rpartition(":")
        if not colon or not key.strip() or not value.strip():
            raise invalid_value(name, text, f"{word!r} is not of the form name:value")
        if key.strip() in found:
            raise invalid_value(name, text, f"{key.strip()} is there twice")
        found[key.strip()] = value.strip()
    return found
