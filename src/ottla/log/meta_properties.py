"""The owner of a log directory, which `meta.properties` names in Kafka's format: a cluster and a node."""

import re
from collections.abc import Mapping
from typing import Final
from uuid import UUID, uuid4

from ottla.errors import InvalidConfig
from ottla.ids import BrokerId, uuid_from_text, uuid_to_text
from ottla.log.fs import FileSystem, replace_atomically

META_PROPERTIES: Final = "meta.properties"
_OF_A_UNIT: Final = re.compile(r"core-[0-9]+").fullmatch


def read(fs: FileSystem, directory: str) -> dict[str, str]:
    """The properties; empty if the file does not exist yet. Raises OSError."""
    try:
        text = fs.read_bytes(f"{directory}/{META_PROPERTIES}").decode()
    except FileNotFoundError:
        return {}
    lines = (line.strip() for line in text.splitlines())
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def directory_uuid(directory_id: str) -> UUID:
    """The id of a directory as requests and the metadata log have it."""
    return uuid_from_text(directory_id)


def claim(fs: FileSystem, directory: str, cluster_id: str, node_id: BrokerId, *, zookeeper: bool) -> str:
    """Checks that the directory is this node's, or makes it so if it is new; returns its `directory.id`.

    With `zookeeper`, a new one is marked as Kafka's brokers with ZooKeeper want it. Raises InvalidConfig if it belongs
    to another cluster or node, OSError.
    """
    found = read(fs, directory)
    there = found.get("cluster.id", cluster_id)
    if there != cluster_id:
        raise InvalidConfig(
            f"{directory} belongs to the cluster {there}, not {cluster_id}: point log.dirs to the data of "
            "this cluster, or to an empty directory"
        )
    node = found.get("node.id", found.get("broker.id", str(node_id)))
    if node != str(node_id):
        raise InvalidConfig(f"{directory} belongs to node {node}, not {node_id}: see node.id and log.dirs")
    if directory_id := found.get("directory.id", ""):
        return directory_id
    directory_id = random_id()
    # Kafka's brokers with ZooKeeper support version 0 only, those of KRaft version 1.
    version, number = ("0", "broker.id") if zookeeper and found.get("version", "0") == "0" else ("1", "node.id")
    lines = {
        **{key: value for key, value in found.items() if key not in ("broker.id", "node.id")},
        "version": version,
        "cluster.id": cluster_id,
        number: str(node_id),
        "directory.id": directory_id,
    }
    write(fs, directory, lines)
    return directory_id


def check_is_no_units(fs: FileSystem, directory: str) -> None:
    """Raise InvalidConfig where a new broker would begin beside the data of a unit (`ottla serve --cores`). Raises
    OSError."""
    if fs.exists(f"{directory}/{META_PROPERTIES}"):
        return
    found = [name for name, is_directory, _ in fs.names(directory) if is_directory and _OF_A_UNIT(name)]
    if any(fs.exists(f"{directory}/{name}/{META_PROPERTIES}") for name in found):
        raise InvalidConfig(
            f"log.dirs: {directory} holds the data of {len(found)} brokers that ran as one unit: run it with "
            f"--cores {len(found)}, or name another directory"
        )


def leave_zookeeper(fs: FileSystem, directory: str) -> None:
    """Mark the directory of a broker that had ZooKeeper as Kafka's nodes of a quorum want it. Raises OSError."""
    found = read(fs, directory)
    number = found.pop("broker.id", None)
    if found.get("version", "0") == "0" and number is not None:
        write(fs, directory, {"node.id": number, **found, "version": "1"})


def write(fs: FileSystem, directory: str, properties: Mapping[str, str]) -> None:
    """Give a directory its owner; durable when this returns. Raises OSError."""
    text = "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))
    replace_atomically(fs, f"{directory}/{META_PROPERTIES}", text.encode())


def random_id() -> str:
    """An id for a directory or a cluster, in Kafka's text form; none begins with a dash, like an option."""
    while True:
        text = uuid_to_text(uuid4())
        if not text.startswith("-"):
            return text
