"""The metadata store that brokers share: an Apache ZooKeeper ensemble (3.6 or newer), below a path of its own.

Reads ask for a thousand nodes at a time; a watch is one of ZooKeeper's persistent recursive ones. What is asked for
while there is no connection waits for one. A transaction whose answer was lost is looked for when there is a connection
again: it is known to be carried out, or carried out now, or reported as not known.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    UnimplementedError,
    ZookeeperError,
)
from kazoo.protocol import serialization as wire

from ottla.config.zookeeper import ZooKeeperSecurity
from ottla.metadata.store import zookeeper_commit as transactions
from ottla.metadata.store.base import (
    Create,
    Delete,
    Node,
    Operation,
    SessionListener,
    StoreConflict,
    StoreUnavailable,
    TransactionTooLarge,
)
from ottla.metadata.store.zookeeper_acls import acls_below, open_to_everybody
from ottla.metadata.store.zookeeper_address import ZooKeeperAddress, parse_address
from ottla.metadata.store.zookeeper_commit import Outcome, Request
from ottla.metadata.store.zookeeper_security import secure_connections
from ottla.metadata.store.zookeeper_session import LOST_CONNECTION, Session, now
from ottla.metadata.store.zookeeper_wire import AddWatch, Found, MultiRead

log = logging.getLogger(__name__)

PERSISTENT_PATHS: Final = (
    "/consumers",
    "/brokers/ids",
    "/brokers/topics",
    "/brokers/seqid",
    "/config/changes",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/admin/delete_topics",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
)
"""What a broker of Kafka makes when it starts, so that others can watch it (`ZkData.PersistentZkPaths`)."""
MARKS: Final = "/admin/delete_topics"
"""Nodes right below this path say all they have to say by being there: they are nodes, though without data."""

OPEN: Final = ZooKeeperSecurity()
READ_AT_ONCE: Final = 1000
ATTEMPTS: Final = 10
"""At a transaction that others disturb by making and deleting the parents of its nodes."""


class ZooKeeperStore:
    """A `MetadataStore` in ZooKeeper."""

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        session_file: Path | None = None,
        security: ZooKeeperSecurity = OPEN,
    ) -> None:
        """Nothing is connected yet.

        Args:
            connect: as in `zookeeper.connect`.
            session_timeout_ms: after which ZooKeeper ends the session of a silent client.
            connection_timeout_ms: how long `open`, `read` and `commit` wait for a connection.
            session_file: where the session is kept for the next start: after a crash it ends the old one, whose nodes
                would be in the way.
            security: TLS, login, and whether nodes are protected.

        Raises `InvalidConfig`.
        """
        self._address: ZooKeeperAddress = parse_address(connect)
        self._root = self._address.root
        self._acls = acls_below(self._root) if security.sets_acls else open_to_everybody
        self._connection_timeout_s = connection_timeout_ms / 1000
        self._session = Session(
            self._address,
            session_timeout_ms=session_timeout_ms,
            session_file=session_file,
            node_changed=self._node_changed,
            connected=self._watch_again,
            secure=secure_connections(security),
        )
        self._watches: list[tuple[str, Callable[[], None]]] = []
        self._due: set[tuple[str, Callable[[], None]]] = set()
        self._is_open = False

    async def open(self) -> None:
        """Begin a session, and make the paths that are always there, the one all others are below included."""
        await self._session.open(self._connection_timeout_s)
        try:
            await self._make_paths()
        except BaseException:
            await self._session.close()
            raise
        self._is_open = True

    async def close(self) -> None:
        """End the session; ephemeral nodes go with it."""
        self._is_open = False
        self._watches.clear()
        await self._session.close()

    def on_session(self, listener: SessionListener) -> None:
        self._session.on_event(listener)

    def holds_session(self) -> bool:
        return self._session.holds()

    async def _make_paths(self) -> None:
        wanted = [self._root + path for path in PERSISTENT_PATHS]
        every = dict.fromkeys(path for leaf in wanted for path in (*transactions.parents(leaf), leaf))
        deadline = now() + self._connection_timeout_s
        for _ in range(ATTEMPTS):
            found = await self._get(list(every), deadline)
            missing = [path for path in every if path not in found]
            if not missing:
                return
            requests = transactions.requests_for([], "", missing=missing, empty={}, mere=(), acls=self._acls)
            try:
                await self._session.send(wire.Transaction(requests))  # or another broker has made some of them just now
            except LOST_CONNECTION:
                await self._session.until_connected(deadline)
        raise self._session.unavailable(f"the paths below {self._root or '/'} cannot be made")

    # -- reading -----------------------------------------------------------------------------------------------------

    async def read(self, prefix: str) -> dict[str, Node]:
        """Read a tree of znodes, by path; retried until `connection_timeout_s` has passed."""
        deadline = now() + self._connection_timeout_s
        top = self._root + prefix if prefix != "/" else self._root or "/"
        found = await self._tree([top], deadline)
        nodes: dict[str, Node] = {}
        cut = len(self._root)
        marks = f"{self._root}{MARKS}"
        for path, (data, stat) in found.items():
            if data is not None or path.rpartition("/")[0] == marks:
                is_own = stat.ephemeralOwner == self._session.session_id != 0
                nodes[path[cut:] or "/"] = Node(data or b"", stat.version, stat.czxid, stat.mzxid, is_own)
        return nodes

    async def _tree(self, tops: Sequence[str], deadline: float) -> dict[str, Found]:
        """All nodes at and below some whole paths, mere parents included."""
        found: dict[str, Found] = {}
        level = list(tops)
        while level:
            nodes = await self._get(level, deadline)
            found.update(nodes)
            with_children = [path for path, node in nodes.items() if node.stat.numChildren]
            level = [
                f"{path.rstrip('/')}/{child}"
                for path, children in zip(with_children, await self._children(with_children, deadline), strict=True)
                for child in children
                if path != "/" or child != "zookeeper"  # ZooKeeper's own
            ]
        return found

    async def _get(self, paths: Sequence[str], deadline: float) -> dict[str, Found]:
        requests = [wire.GetData(path, None) for path in paths]
        answers = await self._multi_read(requests, deadline)
        return {path: answer for path, answer in zip(paths, answers, strict=True) if isinstance(answer, Found)}

    async def _children(self, paths: Sequence[str], deadline: float) -> list[list[str]]:
        answers = await self._multi_read([wire.GetChildren(path, None) for path in paths], deadline)
        return [answer if isinstance(answer, list) else [] for answer in answers]

    async def _multi_read(
        self, requests: "Sequence[wire.GetData | wire.GetChildren]", deadline: float
    ) -> list[Found | list[str] | ZookeeperError]:
        """One answer to each, in order; what is not there is a NoNodeError. Asks again after a lost connection."""
        while True:
            await self._session.until_connected(deadline)
            try:
                # What any broker has committed by now shall be seen, also by a server that is behind its leader.
                pending = [self._session.send(wire.Sync(self._root or "/"))]
                pending += [
                    self._session.send(MultiRead(tuple(requests[at : at + READ_AT_ONCE])))
                    for at in range(0, len(requests), READ_AT_ONCE)
                ]
                answers = [answer for part in (await asyncio.gather(*pending))[1:] for answer in part]
            except LOST_CONNECTION as lost:
                if now() > deadline:
                    raise self._session.unavailable("the connection was lost") from lost
            except UnimplementedError as old:
                raise StoreUnavailable(f"ZooKeeper at {self._address} is too old: 3.6 or newer is needed") from old
            except ZookeeperError as refused:
                raise self._refused(refused) from refused
            else:
                for answer in answers:
                    if isinstance(answer, ZookeeperError) and not isinstance(answer, NoNodeError):
                        raise self._refused(answer)
                return answers

    def _refused(self, error: ZookeeperError) -> StoreUnavailable:
        return StoreUnavailable(f"ZooKeeper at {self._address} refused a request: {error!r}")

    # -- transactions ------------------------------------------------------------------------------------------------

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Commit by one multi request; TransactionTooLarge if ZooKeeper would not take it."""
        deadline = now() + self._connection_timeout_s
        for _ in range(ATTEMPTS):
            requests = await self._requests_for(operations, deadline)
            size = transactions.size_bytes(requests)
            if size > transactions.MAX_REQUEST_BYTES:
                if await self._prune(operations, deadline):
                    continue
                raise TransactionTooLarge(
                    f"ZooKeeper takes {transactions.MAX_REQUEST_BYTES} bytes at once, and this change needs {size}"
                )
            await self._session.until_connected(deadline)
            session_id, newest_before = self._session.session_id, self._session.newest_change
            try:
                results = await self._session.send(wire.Transaction(requests))
            except LOST_CONNECTION as lost:
                if await self._was_done(requests, session_id, newest_before, deadline, lost):
                    return
                continue
            except ZookeeperError as refused:
                raise self._refused(refused) from refused
            failure = transactions.first_failure(results)
            if failure is None:
                return
            await self._judge(requests[failure[0]], failure[1], operations, deadline)
        raise self._session.unavailable("others kept changing what a transaction needs")

    async def _requests_for(self, operations: Sequence[Operation], deadline: float) -> list[Request]:
        """What carries the operations out, given what is there now."""
        created = [operation for operation in operations if isinstance(operation, Create)]
        in_hand = {self._root + operation.path for operation in created}
        above = dict.fromkeys(path for node in in_hand for path in transactions.parents(node))
        wanted = [path for path in above if path not in in_hand]
        exact = [self._root + operation.path for operation in created if not operation.sequential]
        found = await self._get([*wanted, *exact], deadline) if wanted or exact else {}
        empty = {
            path: found[path].stat.version
            for path in exact
            if path in found and self._is_empty(path, found[path]) and found[path].stat.numChildren == 0
        }
        gone = [self._root + operation.path for operation in operations if isinstance(operation, Delete)]
        mere: list[str] = []
        if gone:
            named = set(gone)
            below = await self._tree(gone, deadline)
            mere = [path for path, node in below.items() if path not in named and self._is_empty(path, node)]
        return transactions.requests_for(
            operations,
            self._root,
            missing=[path for path in wanted if path not in found],
            empty=empty,
            mere=mere,
            acls=self._acls,
        )

    async def _prune(self, operations: Sequence[Operation], deadline: float) -> bool:
        """Delete empty parent nodes without children that these operations would leave; returns whether there were
        any. No reader sees them, and writers that need one create it again."""
        named = {self._root + operation.path for operation in operations if isinstance(operation, Delete)}
        below = await self._tree(sorted(named), deadline)
        leaves = [
            path
            for path, node in below.items()
            if path not in named and self._is_empty(path, node) and node.stat.numChildren == 0
        ]
        for start in range(0, len(leaves), READ_AT_ONCE):
            gone = [wire.Delete(path, -1) for path in leaves[start : start + READ_AT_ONCE]]
            try:
                await self._session.send(wire.Transaction(gone))
            except LOST_CONNECTION:
                await self._session.until_connected(deadline)
            except ZookeeperError as refused:
                raise self._refused(refused) from refused
        return bool(leaves)

    def _is_empty(self, path: str, node: Found) -> bool:
        return node.data is None and path.rpartition("/")[0] != f"{self._root}{MARKS}"

    async def _judge(
        self, refused: Request, error: ZookeeperError, operations: Sequence[Operation], deadline: float
    ) -> None:
        """Return if another attempt can do better; raises `StoreConflict`."""
        by_path = {self._root + operation.path: operation for operation in operations}
        if isinstance(error, NotEmptyError):
            left = [
                path
                for path, node in (await self._tree([refused.path], deadline)).items()
                if path not in by_path and not self._is_empty(path, node)
            ]
            if left:
                top = next(path for path in (*transactions.parents(left[0]), left[0]) if path in by_path)
                raise StoreConflict(by_path[top].path, f"cannot go: {left[0][len(self._root) :]} is below it")
            return
        operation = by_path.get(refused.path)
        if operation is None:  # a parent that someone has made or deleted meanwhile
            return
        match error:
            case NodeExistsError():
                found = (await self._get([refused.path], deadline)).get(refused.path)
                if found is not None and not (self._is_empty(refused.path, found) and found.stat.numChildren == 0):
                    raise StoreConflict(operation.path, "is there already")
            case NoNodeError() if isinstance(operation, Create):
                return
            case NoNodeError() | BadVersionError():
                version = getattr(operation, "version", 0)
                raise StoreConflict(operation.path, f"is not there in version {version}")
            case _:
                raise self._refused(error)

    async def _was_done(
        self, requests: Sequence[Request], session_id: int, newest_before: int, deadline: float, lost: ZookeeperError
    ) -> bool:
        """Whether a transaction without an answer was carried out. Raises `StoreUnavailable` if that cannot be known.

        A session takes no request that comes in by a connection it has left, and `sync` waits for those before: what
        is read on the new connection is the last word.
        """
        paths = dict.fromkeys(
            path for request in requests for path in (request.path, request.path.rpartition("/")[0] or "/")
        )
        nodes = await self._get(list(paths), deadline)
        known = transactions.outcome(requests, nodes, newest_before=newest_before, session_id=session_id)
        if session_id != self._session.session_id and any(
            isinstance(request, wire.Create) and request.flags & transactions.EPHEMERAL for request in requests
        ):
            known = Outcome.UNKNOWN  # what it may have made has gone with the session
        if known is Outcome.UNKNOWN:
            why = "the session ended" if isinstance(lost, SessionExpiredError) else "the connection was lost"
            raise self._session.unavailable(f"{why}, and it is not known whether a change was made") from lost
        log.info("a change whose answer was lost %s", "was made" if known is Outcome.DONE else "is made again")
        return known is Outcome.DONE

    # -- watching ----------------------------------------------------------------------------------------------------

    def watch(self, prefix: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after changes below `prefix`, until the returned function is called."""
        entry = (prefix, changed)
        self._watches.append(entry)
        self._add_watches([prefix])

        def cancel() -> None:
            if entry in self._watches:
                self._watches.remove(entry)

        return cancel

    def _add_watches(self, prefixes: Iterable[str]) -> None:
        for prefix in dict.fromkeys(prefixes):
            added = self._session.send(AddWatch(self._root + prefix if prefix != "/" else self._root or "/"))
            # A connection that is lost is followed by another, for which all are added again.
            added.add_done_callback(lambda answer: None if answer.cancelled() else answer.exception())

    def _watch_again(self) -> None:
        """On a new connection: changes made in between caused no event."""
        self._add_watches(prefix for prefix, _ in self._watches)
        if self._is_open:
            for entry in self._watches:
                self._call_soon(entry)

    def _node_changed(self, path: str) -> None:
        path = path[len(self._root) :] or "/"
        for entry in self._watches:
            prefix = entry[0]
            if prefix == "/" or path == prefix or path.startswith(prefix + "/"):
                self._call_soon(entry)

    def _call_soon(self, entry: tuple[str, Callable[[], None]]) -> None:
        """Once for all changes that have come in together."""
        if entry not in self._due:
            self._due.add(entry)
            asyncio.get_running_loop().call_soon(self._call, entry)

    def _call(self, entry: tuple[str, Callable[[], None]]) -> None:
        self._due.discard(entry)
        if entry in self._watches:
            entry[1]()
