"""Formats the directories of a node of a quorum, as `kafka-storage.sh format` does.

    <each directory>/bootstrap.checkpoint    feature levels and users, which the first controller of a cluster appends
    <metadata.log.dir>/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint    kraft.version, first voters
    <each directory>/meta.properties         cluster, node and directory; written last: only now it is formatted

Everything is checked before anything is written. Source: Kafka 4.3, `Formatter`, `StorageTool`, `DynamicVoters`.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from ipaddress import IPv6Address
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from ottla.clock import Clock
from ottla.cluster.features import METADATA_VERSION
from ottla.cluster.metadata_log import levels
from ottla.cluster.metadata_log.framing import framed
from ottla.cluster.metadata_log.levels import KRAFT_VERSION, NAMES, RANGES, SCRAM_SINCE
from ottla.config.broker import BrokerConfig
from ottla.errors import InvalidConfig
from ottla.ids import BrokerId, uuid_to_text
from ottla.log import meta_properties
from ottla.log.fs import FileSystem
from ottla.metadata.quorum import snapshots
from ottla.metadata.quorum.metadata_log import DIRECTORY
from ottla.metadata.quorum.snapshots import SnapshotWriter
from ottla.protocol.metadata_records import FeatureLevelRecord, UserScramCredentialRecord
from ottla.protocol.schema import Message
from ottla.quorum.replicas import EMPTY_LOG, Endpoint, ReplicaKey, Voter, VoterSet
from ottla.quorum.voter_history import kraft_version_record, voters_record

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
VOTERS: Final = "controller.quorum.voters"
_VOTER: Final = re.compile(r"([0-9]{1,10})@(\[[0-9a-fA-F:.]+\]|[^\s:@/\[\]]+):([0-9]{1,5}):([A-Za-z0-9_-]{22})")
_ID: Final = re.compile(r"[^\s=]+")
_RESERVED_IDS: Final = 100
"""The lowest ids, which Kafka gives to no directory."""
_DYNAMIC_OPTIONS: Final = "--standalone, --initial-controllers or --no-initial-controllers"


class Kind(StrEnum):
    """What a directory is for, in Kafka's words."""

    DATA = "data directory"
    STATIC_METADATA = "metadata directory"
    METADATA = "dynamic metadata directory"
    VOTER = "dynamic metadata voter directory"


class Wishes(NamedTuple):
    """What is to be formatted how; see `kafka-storage.sh format`."""

    cluster_id: str
    standalone: bool = False
    """This node is the first and only voter."""
    no_initial_controllers: bool = False
    """This node finds its quorum, and may become a voter later."""
    initial_controllers: str | None = None
    """The first voters: `id@host:port:directory` for each."""
    release_version: str | None = None
    """The `metadata.version`, as a release or by its name; the newest by default."""
    features: Mapping[str, int] = {}
    """Levels of features that are not to have those of the release."""
    users: Sequence[UserScramCredentialRecord] = ()
    ignores_formatted: bool = False
    """Leave directories that are formatted already, instead of refusing."""


class Directory(NamedTuple):
    """A directory that is to be formatted."""

    path: str
    kind: Kind
    directory_id: str


class Plan(NamedTuple):
    """What will be written."""

    cluster_id: str
    node_id: int
    metadata_version: int
    bootstrap: list[bytes]
    """Framed records."""
    voters: VoterSet | None
    """The first voters of a quorum that can change; None for a static one, or one that is found."""
    directories: list[Directory]
    """Those that are not formatted yet."""


def format_node(fs: FileSystem, clock: Clock, config: BrokerConfig, wishes: Wishes) -> Plan:
    """Format what is not formatted yet, and return what that was. Raises InvalidConfig, OSError."""
    planned = plan(fs, config, wishes)
    write(fs, planned, now_ms=clock.now_ms())
    return planned


def format_missing(
    fs: FileSystem, clock: Clock, nodes: Sequence[BrokerConfig], *, standalone: bool = False
) -> list[Plan]:
    """Format the nodes that are not formatted yet, for the cluster of those that are, else for a new one. `standalone`
    as in `Wishes`.

    Returns what was formatted. Raises InvalidConfig, OSError.
    """
    cluster_ids = [each.owner["cluster.id"] for node in nodes for each in inspect(fs, node) if each.owner]
    wishes = Wishes(cluster_ids[0] if cluster_ids else meta_properties.random_id(), standalone=standalone)
    return [format_node(fs, clock, node, wishes) for node in nodes if not is_formatted(fs, node)]


def is_formatted(fs: FileSystem, config: BrokerConfig) -> bool:
    """Whether all directories of a node have an owner."""
    return all(each.owner for each in inspect(fs, config))


def plan(fs: FileSystem, config: BrokerConfig, wishes: Wishes) -> Plan:
    """Check the wishes, and look at the directories. Raises InvalidConfig, OSError."""
    if not _ID.fullmatch(wishes.cluster_id):
        raise InvalidConfig(
            f"{wishes.cluster_id!r} cannot be the id of a cluster: `ottla storage random-uuid` makes one"
        )
    _check_roles(config)
    voters = _first_voters(config, wishes)
    is_dynamic = voters is not None or (wishes.no_initial_controllers and not config.controller_quorum_voters)
    features = feature_levels(wishes.release_version, wishes.features, is_dynamic=is_dynamic)
    level = features[METADATA_VERSION]
    if wishes.users and level < SCRAM_SINCE:
        raise InvalidConfig(
            f"users of SCRAM need {METADATA_VERSION} {NAMES[SCRAM_SINCE]} or above, and {NAMES[level]} is asked for"
        )
    records: list[Message] = [
        FeatureLevelRecord(name=name, feature_level=features[name])
        for name in (METADATA_VERSION, *sorted(features.keys() - {METADATA_VERSION, KRAFT_VERSION}))
        if features[name]
    ]
    bootstrap = [framed(record, level) for record in (*records, *wishes.users)]
    directories = _unformatted(fs, config, wishes, voters)
    return Plan(wishes.cluster_id, config.node_id, level, bootstrap, voters, directories)


def write(fs: FileSystem, plan: Plan, *, now_ms: int) -> None:
    """Format the directories, one after the other; `now_ms` is wall-clock time. Raises OSError."""
    for directory in plan.directories:
        fs.make_directory(directory.path)
        _remove_begun(fs, f"{directory.path}/{DIRECTORY}")
        bootstrap = SnapshotWriter(
            fs,
            directory.path,
            EMPTY_LOG,
            last_append_time_ms=0,
            of_voters=[],
            now_ms=now_ms,
            name=BOOTSTRAP_CHECKPOINT,
        )
        bootstrap.add_all(plan.bootstrap)
        bootstrap.finish()
        if directory.kind in (Kind.METADATA, Kind.VOTER) and plan.voters is not None:
            write_voters(fs, directory.path, plan.voters, now_ms=now_ms)
        lines = {"version": "1", "cluster.id": plan.cluster_id, "node.id": str(plan.node_id)}
        meta_properties.write(fs, directory.path, lines | {"directory.id": directory.directory_id})


def _remove_begun(fs: FileSystem, log: str) -> None:
    """Remove what a format that did not end has left (see `holds_metadata`): its voters need not be those of now."""
    if fs.exists(log):
        for name, _, _ in fs.names(log):
            fs.remove(f"{log}/{name}")
        fs.sync_directory(log)


def write_voters(fs: FileSystem, path: str, voters: VoterSet, *, now_ms: int) -> None:
    """Begin the metadata log in a directory with the first voters of a quorum that can change. Raises OSError."""
    log = f"{path}/{DIRECTORY}"
    _remove_begun(fs, log)
    fs.make_directory(log)
    first = [kraft_version_record(1), voters_record(voters)]
    SnapshotWriter(fs, log, EMPTY_LOG, last_append_time_ms=now_ms, of_voters=first, now_ms=now_ms).finish()


def paths_of(config: BrokerConfig) -> list[str]:
    """The directories of a node, that of the metadata log among them, sorted."""
    return sorted({*map(str, config.log_dirs), metadata_path(config)})


def feature_levels(release_version: str | None, asked: Mapping[str, int], *, is_dynamic: bool) -> dict[str, int]:
    """The level of every feature, zeros included. Raises InvalidConfig."""
    if METADATA_VERSION in asked and release_version is not None:
        raise InvalidConfig(f"give the release version or the feature {METADATA_VERSION}, not both")
    unknown = sorted(asked.keys() - RANGES.keys())
    if unknown:
        raise InvalidConfig(f"there is no feature {unknown[0]!r}; there are {', '.join(sorted(RANGES))}")
    for feature, level in asked.items():
        lowest, highest = RANGES[feature]
        if not lowest <= level <= highest:
            raise InvalidConfig(f"{feature} is {lowest} to {highest}, not {level}")
    if release_version is not None:
        metadata_version = levels.metadata_version_of(release_version)
    else:
        metadata_version = asked.get(METADATA_VERSION, levels.HIGHEST)
    found = {**dict.fromkeys(RANGES, 0), **levels.initial_features(metadata_version), KRAFT_VERSION: int(is_dynamic)}
    if asked.get(KRAFT_VERSION, is_dynamic) != is_dynamic:
        needed = f"{VOTERS} empty, and one of {_DYNAMIC_OPTIONS}"
        raise InvalidConfig(
            f"{KRAFT_VERSION}=1 needs {needed}"
            if not is_dynamic
            else f"{KRAFT_VERSION}=0 is the level of a quorum that does not change: with {needed} it is 1"
        )
    found |= asked
    for feature, level in found.items():
        problem = levels.missing_dependency(feature, level, found)
        if problem is not None:
            raise InvalidConfig(problem)
    return found


def parse_voters(text: str, listener: str) -> VoterSet:
    """The voters of `--initial-controllers`, at the controllers' listener. Raises InvalidConfig."""
    voters = []
    for word in text.split(","):
        found = _VOTER.fullmatch(word.strip())
        if found is None or not 0 < int(found[3]) <= 65535 or int(found[1]) >= 1 << 31:
            raise InvalidConfig(f"--initial-controllers: {word!r} is not of the form id@host:port:directory-id")
        directory_id = meta_properties.directory_uuid(found[4])
        if directory_id.int < _RESERVED_IDS:
            raise InvalidConfig(f"--initial-controllers: {found[4]} is no id of a directory, but reserved by Kafka")
        voters.append(_voter(int(found[1]), directory_id, Endpoint(listener, _host(found[2]), int(found[3]))))
    try:
        return VoterSet(voters)
    except ValueError as problem:
        raise InvalidConfig(f"--initial-controllers: {problem}") from None


def _host(text: str) -> str:
    """A name or an address; one of IPv6 as Java spells it, so that all nodes write the same. Raises InvalidConfig."""
    if not text.startswith("["):
        return text
    try:
        return ":".join(f"{int(group, 16):x}" for group in IPv6Address(text[1:-1]).exploded.split(":"))
    except ValueError as problem:
        raise InvalidConfig(f"--initial-controllers: {problem}") from None


def _voter(node_id: int, directory_id: UUID, endpoint: Endpoint) -> Voter:
    return Voter(ReplicaKey(node_id, directory_id), (endpoint,), *RANGES[KRAFT_VERSION])


def _check_roles(config: BrokerConfig) -> None:
    is_on_zookeeper = config.zookeeper_connect is not None and not config.is_migrating
    if not config.given.get("process.roles", "").strip() or is_on_zookeeper:
        raise InvalidConfig(
            "the settings are not those of a node of a quorum: process.roles is missing, or zookeeper.connect is set; "
            "directories of other brokers need no format"
        )
    if "node.id" not in config.given and "broker.id" not in config.given:
        raise InvalidConfig("node.id is missing: the directories are formatted for one node")
    if not config.controller_listener_names:
        raise InvalidConfig("controller.listener.names is missing: it names the listener of the controllers")


def _first_voters(config: BrokerConfig, wishes: Wishes) -> VoterSet | None:
    listener = config.controller_listener_names[0].upper()
    is_controller = "controller" in config.process_roles
    asks = wishes.standalone or wishes.initial_controllers is not None
    if asks and config.controller_quorum_voters:
        raise InvalidConfig(
            f"{VOTERS} names the voters of a quorum that does not change: remove it, and set "
            "controller.quorum.bootstrap.servers, or format without --standalone and --initial-controllers"
        )
    if wishes.initial_controllers is not None:
        return parse_voters(wishes.initial_controllers, listener)
    if not wishes.standalone:
        if is_controller and not config.controller_quorum_voters and not wishes.no_initial_controllers:
            raise InvalidConfig(f"this node is a controller, and {VOTERS} is not set: give one of {_DYNAMIC_OPTIONS}")
        return None
    if not is_controller:
        raise InvalidConfig(
            "--standalone is for controllers, and process.roles of this node does not contain controller"
        )
    return only_voter(config, meta_properties.directory_uuid(meta_properties.random_id()))


def only_voter(config: BrokerConfig, directory_id: UUID) -> VoterSet:
    """The node itself, at the controllers' listener. Raises InvalidConfig."""
    advertised = config.advertised_controller_listeners or config.controller_listeners
    if not advertised:
        raise InvalidConfig(f"listeners has none of {', '.join(config.controller_listener_names)}")
    listener = config.controller_listener_names[0].upper()
    address = Endpoint(listener, advertised[0].host or "localhost", advertised[0].port)
    return VoterSet([_voter(config.node_id, directory_id, address)])


def _unformatted(fs: FileSystem, config: BrokerConfig, wishes: Wishes, voters: VoterSet | None) -> list[Directory]:
    found = []
    for path in paths_of(config):
        owner = meta_properties.read(fs, path)
        if not owner:
            _check_is_empty(fs, path)
            found.append(_planned(config, path, voters))
            continue
        check_owner(path, owner, wishes.cluster_id, config.node_id)
        if not wishes.ignores_formatted:
            raise InvalidConfig(
                f"{path} is formatted already; --ignore-formatted leaves it as it is, and formats the others"
            )
    return found


def _planned(config: BrokerConfig, path: str, voters: VoterSet | None) -> Directory:
    voter = None if voters is None else voters.get(config.node_id)
    if path != metadata_path(config):
        return Directory(path, Kind.DATA, meta_properties.random_id())
    if voter is not None:
        return Directory(path, Kind.VOTER, uuid_to_text(voter.key.directory_id))
    return Directory(path, Kind.STATIC_METADATA if voters is None else Kind.METADATA, meta_properties.random_id())


def check_owner(path: str, owner: Mapping[str, str], cluster_id: str, node_id: BrokerId) -> None:
    """Check that a directory is a quorum node's own. Raises InvalidConfig."""
    there = owner.get("cluster.id", cluster_id)
    if there != cluster_id:
        raise InvalidConfig(f"{path} belongs to the cluster {there}, not {cluster_id}")
    node = owner.get("node.id", owner.get("broker.id", str(node_id)))
    if node != str(node_id):
        raise InvalidConfig(f"{path} belongs to node {node}, not {node_id}: see node.id and log.dirs")
    if owner.get("version", "0") == "0":
        raise InvalidConfig(f"{path} belongs to a broker of a cluster with ZooKeeper, or of Kafka before 3.0")


def holds_metadata(fs: FileSystem, path: str) -> bool:
    """Whether a directory has a metadata log; one that a crash has kept from its beginning has the first voters at
    most. Raises OSError."""
    log = f"{path}/{DIRECTORY}"
    begun = (snapshots.file_name(EMPTY_LOG), snapshots.file_name(EMPTY_LOG, f"-own{snapshots.PART}"))
    return fs.exists(log) and any(name not in begun for name, _, _ in fs.names(log))


def _check_is_empty(fs: FileSystem, path: str) -> None:
    """Raises InvalidConfig for a metadata log."""
    if holds_metadata(fs, path):
        raise InvalidConfig(
            f"{path}/{DIRECTORY} holds metadata, and {path} has no {meta_properties.META_PROPERTIES} that names its "
            "owner: put that file back, or move the directory away"
        )


def metadata_path(config: BrokerConfig) -> str:
    """The directory that the metadata log is in."""
    return str(Path(config.metadata_log_dir)) if config.metadata_log_dir else str(config.log_dirs[0])


class Found(NamedTuple):
    """A directory as it is."""

    path: str
    owner: Mapping[str, str]
    """Its `meta.properties`; empty if it is not formatted."""
    problem: str | None
    """What is wrong with it, as a sentence."""


def inspect(fs: FileSystem, config: BrokerConfig) -> list[Found]:
    """The directories of a node, formatted by Ottla or by Kafka."""
    found: list[Found] = []
    cluster_id: str | None = None
    for path in paths_of(config):
        try:
            is_there = fs.exists(path)
            owner = meta_properties.read(fs, path)
        except (OSError, UnicodeDecodeError) as problem:
            found.append(Found(path, {}, f"cannot be read: {getattr(problem, 'strerror', None) or problem}"))
            continue
        problem_text = None if owner else ("is not formatted" if is_there else "does not exist")
        if owner:
            cluster_id = cluster_id or owner.get("cluster.id", "")
            try:
                check_owner("it", owner, cluster_id, config.node_id)
            except InvalidConfig as mismatch:
                problem_text = str(mismatch).removeprefix("it ")
        found.append(Found(path, owner, problem_text))
    return found
