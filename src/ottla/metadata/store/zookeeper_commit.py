"""PURE. A transaction as ZooKeeper operations, and whether one whose answer was lost has been carried out.

A node without data is only a parent of others. Kafka creates those, and so does a transaction that needs them;
deleting a node deletes such parents below it.

    Create /brokers/topics/orders/partitions/0/state      create  /brokers/topics/orders/partitions      no data
                                                          create  /brokers/topics/orders/partitions/0    no data
                                                          create  /brokers/topics/orders/partitions/0/state
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, Protocol

from kazoo.exceptions import RolledBackError, RuntimeInconsistency, ZookeeperError
from kazoo.protocol import serialization as wire

from ottla.metadata.store.base import Check, Create, Delete, Operation, Update
from ottla.metadata.store.zookeeper_acls import Acls, open_to_everybody
from ottla.metadata.store.zookeeper_wire import Found

EPHEMERAL, SEQUENTIAL = 1, 2
MAX_REQUEST_BYTES: Final = (1 << 20) - 1
"""ZooKeeper's own limit (`jute.maxbuffer`)."""
_REQUEST_HEADER_BYTES: Final = 8


class Request(Protocol):
    """One of kazoo's `Create`, `SetData`, `Delete` and `CheckVersion`."""

    @property
    def path(self) -> str: ...


class Outcome(Enum):
    """The known outcome of a transaction whose answer was lost."""

    DONE = auto()
    NOT_DONE = auto()
    UNKNOWN = auto()


def parents(path: str) -> list[str]:
    """The paths above one, from the top: `/a/b/c` has `/a` and `/a/b`."""
    names = path.split("/")
    return ["/".join(names[:end]) for end in range(2, len(names))]


def requests_for(
    operations: Sequence[Operation],
    root: str,
    *,
    missing: Iterable[str],
    empty: Mapping[str, int],
    mere: Iterable[str],
    acls: Callable[[str], Acls] = open_to_everybody,
) -> list[Request]:
    """The requests, parents before children where something is made, children before parents where it goes.

    Args:
        operations: with paths below `root`.
        missing: whole paths that have to be made as mere parents.
        empty: whole paths that are to be created but are there already, without data or children, with their versions.
        mere: whole paths of mere parents that go, because something above them does.
        acls: gives the ACLs of a node that is created at a whole path.
    """
    checks: list[Request] = []
    made: list[Request] = [_create(path, None, 0, acls) for path in missing]
    updates: list[Request] = []
    gone: list[Request] = [wire.Delete(path, -1) for path in mere]
    for operation in operations:
        path = root + operation.path
        match operation:
            case Create(_, data, session_bound, sequential):
                if path in empty:
                    made.append(wire.SetData(path, data, empty[path]))
                else:
                    made.append(_create(path, data, EPHEMERAL * session_bound | SEQUENTIAL * sequential, acls))
            case Update(_, data, version):
                updates.append(wire.SetData(path, data, version))
            case Delete(_, version):
                gone.append(wire.Delete(path, version))
            case Check(_, version):
                checks.append(wire.CheckVersion(path, version))
    made.sort(key=lambda request: request.path.count("/"))
    gone.sort(key=lambda request: -request.path.count("/"))
    return [*checks, *made, *updates, *gone]


def _create(path: str, data: bytes | None, flags: int, acls: Callable[[str], Acls]) -> Request:
    request: Request = wire.Create(path, data, acls(path), flags)
    return request


def size_bytes(requests: Sequence[Request]) -> int:
    """How long the transaction is on the wire."""
    return _REQUEST_HEADER_BYTES + len(wire.Transaction(requests).serialize())


def first_failure(results: Sequence[object]) -> tuple[int, ZookeeperError] | None:
    """Which request of a transaction was refused, and why; None if all were carried out."""
    for at, result in enumerate(results):
        if isinstance(result, ZookeeperError) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
            return at, result
    return None


# -- was it carried out? -------------------------------------------------------------------------------------------


def outcome(requests: Sequence[Request], nodes: Mapping[str, Found], *, newest_before: int, session_id: int) -> Outcome:
    """Whether a transaction has been carried out, once it is sure that it will not be any more.

    A transaction leaves one number (zxid) in everything it touches, above `newest_before`, the newest number that this
    session had seen when it was sent. So one node that was not touched since proves that it was not carried out; and
    all
    nodes in its resulting state, with one number, prove that it was.

    Sequential nodes and checks prove nothing: a transaction of these alone counts as not carried out. Doing it twice
    does no harm.

    Args:
        nodes: the nodes of all requests, and their parents; nodes that do not exist are missing.
        newest_before: see above.
        session_id: of the session, which is still the one that sent it.
    """
    numbers: set[int] = set()
    unclear = False
    telling: list[Any] = [
        request
        for request in requests
        if not isinstance(request, wire.CheckVersion)
        and not (isinstance(request, wire.Create) and request.flags & SEQUENTIAL)
    ]
    if not telling:
        return Outcome.NOT_DONE
    for request in telling:
        found = nodes.get(request.path)
        above = nodes.get(request.path.rpartition("/")[0] or "/")
        siblings_changed = above is None or above.stat.pzxid > newest_before
        if isinstance(request, wire.Delete):
            if found is None:
                if not siblings_changed:
                    return Outcome.NOT_DONE
            elif found.stat.czxid <= newest_before:
                return Outcome.NOT_DONE
            else:
                unclear = True  # someone has made it anew
        elif found is None:
            if not siblings_changed:
                return Outcome.NOT_DONE
            unclear = True  # made and deleted since, or never made
        elif isinstance(request, wire.Create):
            owner = session_id if request.flags & EPHEMERAL else 0
            if found.stat.czxid <= newest_before or found.stat.ephemeralOwner != owner:
                return Outcome.NOT_DONE
            if found.stat.version == 0 and found.data != request.data:
                return Outcome.NOT_DONE
            numbers.add(found.stat.czxid)
            unclear = unclear or found.stat.version > 0
        elif found.stat.mzxid <= newest_before:
            return Outcome.NOT_DONE
        elif found.stat.version == request.version + 1:
            if found.data != request.data:
                return Outcome.NOT_DONE
            numbers.add(found.stat.mzxid)
        else:
            unclear = True  # changed again since
    if len(numbers) > 1:
        return Outcome.NOT_DONE
    return Outcome.UNKNOWN if unclear else Outcome.DONE
