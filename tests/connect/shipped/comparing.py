"""Topics that Ottla's worker and Kafka Connect with Debezium have written of the same changes, field by field."""

import json
from typing import Any, Final

from tests.support.connect import messages_of

OURS: Final = "ours"
"""The prefix of Ottla's topics; of the same length as the other, so that one takes the other's place in every text."""
THEIRS: Final = "them"

Topics = dict[str, tuple[list[Any], list[Any]]]
"""What both have written, by the topics' names without the prefix."""


def written_by_both(bootstrap: str, topics: list[str]) -> Topics:
    """The messages of every topic whose name begins with a prefix and a dot."""
    names = {name.partition(".")[2] for name in topics if name.startswith((f"{OURS}.", f"{THEIRS}."))}
    return {name: (written(bootstrap, OURS, name), written(bootstrap, THEIRS, name)) for name in sorted(names)}


def written(bootstrap: str, prefix: str, name: str) -> list[Any]:
    """All records but Debezium's tombstones without a key, which no compacted topic takes."""
    found = messages_of(bootstrap, f"{prefix}.{name}", 0)
    return [each for each in found if each.key() is not None or each.value() is not None]


def operations_differ(topics: Topics) -> list[str]:
    """A line for each topic whose records are not of the same operations."""
    pairs = {
        name: ([operation(each) for each in a], [operation(each) for each in b]) for name, (a, b) in topics.items()
    }
    return [f"{name}: {ours}, Debezium's {theirs}" for name, (ours, theirs) in pairs.items() if ours != theirs]


def fields_differ(topics: Topics) -> list[str]:
    """A line for each field, in keys, values and headers, that is not the same."""
    found: list[str] = []
    for name, (ours, theirs) in topics.items():
        for number, (our, their) in enumerate(zip(ours, theirs, strict=False)):
            where = f"{name}[{number}]"
            found += differences(f"{where}.key", document(our.key()), document(their.key()))
            found += differences(f"{where}.value", document(our.value()), document(their.value()))
            found += differences(f"{where}.headers", headers(our), headers(their))
    return list(dict.fromkeys(found))


def document(payload: bytes | None) -> Any:
    """JSON, with the name of this worker's prefix as the other has it."""
    return None if payload is None else json.loads(payload.replace(OURS.encode(), THEIRS.encode()))


def headers(message: Any) -> list[tuple[str, Any]]:
    return [(name, value.replace(OURS.encode(), THEIRS.encode())) for name, value in message.headers() or ()]


def operation(message: Any) -> str | None:
    """The operation of a change, or the status of a transaction. None: a tombstone."""
    value = document(message.value())
    return None if value is None else value["payload"].get("op") or value["payload"]["status"]


def differences(where: str, ours: Any, theirs: Any) -> list[str]:
    """A line for each field that is not the same, but for those that cannot be."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if where.endswith((".payload.source", ".payload")):
            ours, theirs = comparable(ours), comparable(theirs)
        if list(ours) != list(theirs):
            return [f"{where} has {list(ours)}, Debezium's {list(theirs)}"]
        return [line for name in ours for line in differences(f"{where}.{name}", ours[name], theirs[name])]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for number, (a, b) in pairs for line in differences(f"{where}[{number}]", a, b)]
    if type(ours) is type(theirs) and ours == theirs:
        return []
    return [f"{where}: {str(ours)[:300]!r}, Debezium's {str(theirs)[:300]!r}"]


def comparable(struct: dict[str, Any]) -> dict[str, Any]:
    """Without what depends on when a connector looked: its own clock and, of rows of a snapshot, its place."""
    unlike = {"ts_ms", "ts_us", "ts_ns"} if "op" in struct else set()
    if struct.get("snapshot", "false") != "false":
        unlike = {"ts_ms", "ts_us", "ts_ns", "lsn", "txId", "sequence", "pos"}
    if struct.get("xmin") is not None:  # of the slot, when it was looked up
        unlike = unlike | {"xmin"}
    if struct.get("data_collections"):  # in no order
        struct = struct | {"data_collections": sorted(map(counted, struct["data_collections"]))}
    return {name: "" if name in unlike else value for name, value in struct.items()}


def counted(count: dict[str, Any]) -> tuple[str, int]:
    """How many changes a table has. What Debezium calls messages is the name of an object in Java's memory."""
    name = count["data_collection"]
    return ("LOGICAL_DECODING_MESSAGE" if "LogicalDecodingMessageId@" in name else name, count["event_count"])
