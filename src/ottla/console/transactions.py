"""Transactions: open ones, what each holds back and from which groups, and those that no coordinator will end."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.admin import HangingTransaction, HeldBack, Partition, Transaction
from ottla.admin.operations.transactions import STATES
from ottla.console.cluster import ClusterView

OPEN_STATES: Final = tuple(each for each in STATES if each == "Ongoing" or each.startswith("Prepare"))
LONGEST_TIMEOUT_MS: Final = 15 * 60 * 1_000
"""Kafka's default of `transaction.max.timeout.ms`: a coordinator has ended each transaction that it knows by then."""
_LISTED_S: Final = 5.0
_HANGING_S: Final = 60.0
_PARTITIONS_AT_ONCE: Final = 2_000


class Waiting(NamedTuple):
    """A group that has read up to where a transaction holds records back, and how many lie behind that."""

    group: str
    partition: Partition
    records: int


class Described(NamedTuple):
    """A transaction, what it holds back, and from which groups."""

    transaction: Transaction
    held_back: list[HeldBack]
    waiting: list[Waiting]


async def listed(view: ClusterView, *, only_open: bool) -> list[Transaction]:
    """The transactional ids: all, or those with an open transaction, the one open for longest first."""
    states = OPEN_STATES if only_open else ()

    async def ask() -> list[Transaction]:
        return await view.dear(lambda admin: admin.list_transactions(states=states))

    found = await view.shared.get(("transactions", only_open), ask, _LISTED_S)
    return sorted(found, key=lambda each: (not each.is_open, each.started_ms if each.is_open else 0))


def matching(transactions: Iterable[Transaction], text: str) -> list[Transaction]:
    """Those whose transactional id contains a text, in any case, or whose producer has this id."""
    wanted = text.lower()
    return [each for each in transactions if wanted in each.transactional_id.lower() or text == str(each.producer_id)]


async def described(view: ClusterView, transactional_id: str) -> Described:
    """One transactional id. Raises NotFound, ClientError."""

    async def ask() -> Described:
        known = await view.dear(lambda admin: admin.describe_transaction(transactional_id))
        held = await view.dear(lambda admin: admin.list_held_back(known))
        return Described(known, held, await _waiting(view, held))

    return await view.shared.get(("transaction", transactional_id), ask, _LISTED_S)


async def _waiting(view: ClusterView, held: Sequence[HeldBack]) -> list[Waiting]:
    behind = {each.partition: each for each in held if each.records}
    if not behind:
        return []
    names = [group.name for group in await view.groups() if group.kind != "share"]
    committed = await view.dear(lambda admin: admin.list_offsets_of_groups(names, behind))
    return waiting(committed, behind)


def waiting(committed: Mapping[str, Mapping[Partition, int]], behind: Mapping[Partition, HeldBack]) -> list[Waiting]:
    """The groups that have committed just the offset at which records are held back, by name.

    Whether a group reads committed records only, no broker knows; one that does not goes on, and is past the offset.
    """
    found = [
        Waiting(group, partition, behind[partition].records or 0)
        for group, offsets in committed.items()
        for partition, offset in offsets.items()
        if partition in behind and offset == behind[partition].last_stable_offset
    ]
    return sorted(found)


async def hanging(view: ClusterView) -> list[HangingTransaction]:
    """Open transactions in which nothing was written for 15 minutes, and that no coordinator knows."""

    async def ask() -> list[HangingTransaction]:
        silent_since_ms = int(time.time() * 1_000) - LONGEST_TIMEOUT_MS
        partitions = list((await view.cluster()).partitions)
        found: list[HangingTransaction] = []
        for start in range(0, len(partitions), _PARTITIONS_AT_ONCE):
            some = partitions[start : start + _PARTITIONS_AT_ONCE]
            found += await view.dear(
                lambda admin, some=some: admin.find_hanging_transactions(some, silent_since_ms)  # type: ignore[misc]
            )
        return found

    return await view.shared.get("hanging", ask, _HANGING_S)
