"""PURE. The settings of each process of a machine's unit, from one set of settings for all.

    node.id=10                              the controller, if the machine has one; brokers are 11, 12, 13, ...
    listeners=PLAINTEXT://box:9092,...      box:9092 is shared by all; the brokers' own are box:9093, box:9094, ...
    metrics.listeners=http://box:9644       box:9644, box:9645, box:9646, ..., and then the controller's
    log.dirs=/data                          /data/core-0, /data/core-1, /data/core-2, ...; /data/controller
    broker.rack                             the machine's name for all, so that no two replicas of a partition share it

Without settings of a cluster the unit is one by itself: with a controller at the port below the first broker's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.errors import InvalidConfig

OPTION: Final = "--cores"
_PATHS: Final = ("log.dirs", "metadata.log.dir", "cordoned.log.dirs")
_AUDIT_FILE: Final = "ottla.audit.file"
_ALL: Final = "*"
_ADDRESS: Final = re.compile(r"([^:]*://)(.*):([0-9]{1,5})(/[^,]*)?")
_OF_A_CLUSTER: Final = ("zookeeper.connect", "controller.quorum.bootstrap.servers", "controller.quorum.voters")
_CONTROLLER: Final = "CONTROLLER"
_COUNTED: Final = {"listeners": 1, "advertised.listeners": 1, "metrics.listeners": 0}
"""Settings with ports, and how far above the given one the first broker's is."""
_REPLICAS_OF_ONE_MACHINE: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class SharedAddress(NamedTuple):
    """Where any broker of the unit that serves answers: the address of one of its listeners."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class Unit(NamedTuple):
    """The settings of a machine's processes."""

    controller: dict[str, str] | None
    """None where the controllers are elsewhere."""
    brokers: list[dict[str, str]]
    is_whole_cluster: bool
    """Whether this controller is the only voter of its quorum."""
    shared: list[SharedAddress]
    """For a client's `bootstrap.servers`; none for a listener whose ports the system chooses."""


def plan(given: Mapping[str, str], cores: int, machine: str) -> Unit:
    """The processes of a machine with `cores` brokers; `machine` is the name of their rack if none is given.

    Raises InvalidConfig for settings that cannot be shared out.
    """
    common = {name: text for name, text in given.items() if name not in ("log.dir", "broker.id")}
    common["log.dirs"] = given.get("log.dirs") or given.get("log.dir") or _default("log.dirs") or _default("log.dir")
    common.setdefault("listeners", _default("listeners"))
    common["node.id"] = str(_number(given))
    if not common.get("broker.rack", "").strip():
        common["broker.rack"] = machine
    if not any(common.get(name, "").strip() for name in _OF_A_CLUSTER):
        common = _of_its_own_cluster(common)
    roles = _words(common.get("process.roles", ""))
    of_controllers = {name.upper() for name in _words(common.get("controller.listener.names", ""))}
    has_controller = "controller" in roles and not common.get("zookeeper.connect", "").strip()
    controller = _controller(common, of_controllers, cores) if has_controller else None
    if has_controller:
        common |= {"process.roles": "broker"}
    first = int(common["node.id"]) + has_controller
    of_all = common | _listeners(common, of_controllers, of_broker=True)
    brokers = [{**of_all, "node.id": str(first + core), **_own(of_all, core)} for core in range(cores)]
    _check_ports([{"listeners": of_all["listeners"]}, *([] if controller is None else [controller]), *brokers], cores)
    return Unit(controller, brokers, has_controller and _is_only_voter(common), list(_shared(of_all["listeners"])))


def _number(given: Mapping[str, str]) -> int:
    text = given.get("node.id") or given.get("broker.id") or "1"
    if not text.strip().isdecimal():
        raise InvalidConfig(f"node.id: must be the first number of the unit for {OPTION}, not {text!r}")
    return int(text)


def _default(name: str) -> str:
    return BROKER_SETTINGS[name].default or ""


def _of_its_own_cluster(common: Mapping[str, str]) -> dict[str, str]:
    """With a controller that only this machine reaches."""
    ports = [int(found[3]) for found in map(_ADDRESS.fullmatch, _words(common["listeners"])) if found]
    port = min(ports, default=0) - 1
    if common.get("authorizer.class.name", "").strip():
        raise InvalidConfig(
            f"authorizer.class.name: the controller that {OPTION} adds listens in plain text, where its brokers have "
            "no right: name process.roles, controller.listener.names and a listener with a login for it"
        )
    if port < 1:
        raise InvalidConfig(f"listeners: {OPTION} needs ports that are given, and one below them for the controller")
    # Without a map a controller's listener has a protocol only beside listeners in plain text, as in Kafka.
    protocols = common.get("listener.security.protocol.map", "").strip() or _default("listener.security.protocol.map")
    return {
        **_REPLICAS_OF_ONE_MACHINE,
        **common,
        "process.roles": "broker,controller",
        "controller.listener.names": _CONTROLLER,
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
        "listeners": f"{common['listeners']},{_CONTROLLER}://127.0.0.1:{port}",
        "listener.security.protocol.map": f"{protocols},{_CONTROLLER}:PLAINTEXT",
    }


def _controller(common: Mapping[str, str], of_controllers: set[str], cores: int) -> dict[str, str]:
    directory = common.get("metadata.log.dir") or _words(common["log.dirs"])[0]
    kept = {name: text for name, text in common.items() if name not in ("metrics.listeners", *_PATHS)}
    measured = [_shifted("metrics.listeners", word, cores) for word in _words(common.get("metrics.listeners", ""))]
    metrics = {"metrics.listeners": ",".join(measured)} if measured else {}
    audit = {} if _AUDIT_FILE not in kept else {_AUDIT_FILE: f"{kept[_AUDIT_FILE]}.controller"}
    own = {"process.roles": "controller", "log.dirs": f"{directory.rstrip('/')}/controller"}
    return {**kept, **_listeners(common, of_controllers, of_broker=False), **metrics, **audit, **own}


def _listeners(common: Mapping[str, str], of_controllers: set[str], *, of_broker: bool) -> dict[str, str]:
    """The listeners of the brokers, or of the controller."""
    own = {}
    for name in ("listeners", "advertised.listeners"):
        words = _words(common.get(name, ""))
        kept = [word for word in words if (word.partition(":")[0].upper() in of_controllers) is not of_broker]
        if words:
            own[name] = ",".join(kept)
    return own


def _is_only_voter(common: Mapping[str, str]) -> bool:
    voters = _words(common.get("controller.quorum.voters", ""))
    known = voters or _words(common.get("controller.quorum.bootstrap.servers", ""))
    return len(known) == 1


def _own(of_all: Mapping[str, str], core: int) -> dict[str, str]:
    """What only one broker has."""
    own = {
        name: ",".join(_shifted(name, word, core + above) for word in _words(of_all[name]))
        for name, above in _COUNTED.items()
        if of_all.get(name, "").strip()
    }
    for name in _PATHS:
        words = _words(of_all.get(name, ""))
        if words and words != [_ALL]:
            own[name] = ",".join(f"{word.rstrip('/')}/core-{core}" for word in words)
    if of_all.get(_AUDIT_FILE, "").strip():
        own[_AUDIT_FILE] = f"{of_all[_AUDIT_FILE].strip()}.core-{core}"
    return own


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _shifted(name: str, word: str, core: int) -> str:
    """The address with its port moved up; a port that the system chooses is chosen for each."""
    found = _ADDRESS.fullmatch(word)
    if found is None:
        raise InvalidConfig(f"{name}: {word!r} has no port, which {OPTION} counts up from")
    port = int(found[3])
    moved = port + core if port else 0
    if moved > 65535:
        raise InvalidConfig(f"{name}: {word!r} leaves no room for the ports of the other brokers")
    return f"{found[1]}{found[2]}:{moved}{found[4] or ''}"


def _shared(listeners: str) -> Iterator[SharedAddress]:
    for word in _words(listeners):
        found = _ADDRESS.fullmatch(word)
        if found is not None and int(found[3]):
            yield SharedAddress(found[1].removesuffix("://").upper(), found[2].strip("[]"), int(found[3]))


def _check_ports(processes: Iterable[Mapping[str, str]], cores: int) -> None:
    seen: dict[int, str] = {}
    for name, word in chain.from_iterable(map(_listening, processes)):
        found = _ADDRESS.fullmatch(word)
        port = 0 if found is None else int(found[3])
        if port in seen:
            raise InvalidConfig(
                f"{name}: {word} meets {seen[port]}: with {OPTION} {cores} each listener of the brokers takes "
                f"{cores + 1} ports in a row, the first of them for all"
            )
        if port:
            seen[port] = word


def _listening(process: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in ("listeners", "metrics.listeners"):
        for word in _words(process.get(name, "")):
            yield name, word
