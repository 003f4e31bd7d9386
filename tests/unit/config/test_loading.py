"""From a properties file to settings, warnings and errors."""

from pathlib import Path

import pytest

from ottla.config import load
from ottla.config.listeners import Listener
from ottla.errors import InvalidConfig


def written(directory: Path, text: str) -> Path:
    file = directory / "server.properties"
    file.write_text(text)
    return file


def test_without_anything() -> None:
    config, warnings = load(None, {})
    assert warnings == []
    assert config.node_id == 1
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.log_dirs == (Path("ottla-data"),)
    assert config.group_initial_rebalance_delay_ms == 0


def test_a_properties_file_and_overrides(tmp_path: Path) -> None:
    file = written(tmp_path, "node.id=7\nlog.dirs=/a, /b\nnum.partitions: 3\nlog.retention.hours 2\n")
    config, warnings = load(file, {"num.partitions": "4"})
    assert warnings == []
    assert config.node_id == 7
    assert config.broker_id == 7
    assert config.log_dirs == (Path("/a"), Path("/b"))
    assert config.num_partitions == 4
    assert config.log_config({}).retention_ms == 2 * 3_600_000
    assert config.group_initial_rebalance_delay_ms == 3000


def test_a_setting_that_is_not_acted_on_is_named_in_a_warning(tmp_path: Path) -> None:
    file = written(tmp_path, "num.network.threads=3\nlistener.name.internal.num.network.threads=2\nnum.partitions=2\n")
    _, warnings = load(file, {})
    assert [warning.partition(":")[0] for warning in warnings] == [
        "num.network.threads",
        "listener.name.internal.num.network.threads",
    ]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("log.retention.hour", "log.retention.hours"),
        ("num.partition", "num.partitions"),
        ("num.io.thread", "num.io.threads"),
        ("advertised.listener", "advertised.listeners"),
        ("flush.before.ack", "log.flush.before.ack"),
    ],
)
def test_a_warning_about_an_unknown_setting_names_the_nearest(name: str, near: str) -> None:
    assert load(None, {name: "1"})[1] == [f"{name}: there is no such setting; did you mean {near}?"]


def test_an_unknown_setting_that_resembles_none() -> None:
    assert load(None, {"qqqqqq": "1"})[1] == ["qqqqqq: there is no such setting"]


def test_strictly_all_unknown_settings_are_refused_at_once_with_their_file(tmp_path: Path) -> None:
    file = written(tmp_path, "num.partition=3\nnode.id=1\nzookeeper.conect=localhost:2181\n")
    with pytest.raises(InvalidConfig) as refused:
        load(file, {"log.dir.": "x"}, strict=True)
    assert str(refused.value).splitlines() == [
        f"{file}: num.partition: there is no such setting; did you mean num.partitions?",
        f"{file}: zookeeper.conect: there is no such setting; did you mean zookeeper.connect?",
        "log.dir.: there is no such setting; did you mean log.dir?",
        "--strict refuses settings that do not exist",
    ]
    assert len(load(file, {})[1]) == 2


def test_what_only_kafka_3_knows_about_zookeeper_is_left_aside(tmp_path: Path) -> None:
    config, warnings = load(None, {"zookeeper.connect": "zk:2181/kafka", "zookeeper.ssl.hostnameVerification": "false"})
    assert config.zookeeper_connect == "zk:2181/kafka"
    assert warnings == ["zookeeper.ssl.hostnameVerification: Ottla does not act on settings of this kind"]


def test_brokers_speak_over_the_listener_that_is_named_or_the_first() -> None:
    listeners = {"listeners": "A://:1,B://:2", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    assert load(None, listeners)[0].inter_broker_listener == "A"
    assert load(None, {**listeners, "inter.broker.listener.name": "B"})[0].inter_broker_listener == "B"
    with pytest.raises(InvalidConfig, match=r"inter\.broker\.listener\.name: C is not in listeners"):
        load(None, {**listeners, "inter.broker.listener.name": "C"})
    both = {"listeners": "A://:1,PLAINTEXT://:2", "listener.security.protocol.map": "A:PLAINTEXT,PLAINTEXT:PLAINTEXT"}
    assert load(None, both)[0].inter_broker_listener == "PLAINTEXT"


def test_a_broker_of_a_cluster_says_where_it_is_reached() -> None:
    given = {"zookeeper.connect": "zk:2181", "listeners": "PLAINTEXT://0.0.0.0:1"}
    with pytest.raises(InvalidConfig, match="needs an address in"):
        load(None, given)
    load(None, given | {"advertised.listeners": "PLAINTEXT://box:1"})


def test_an_unusable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"missing\.properties cannot be read: No such file"):
        load(tmp_path / "missing.properties", {})
    with pytest.raises(InvalidConfig, match="line 2: "):
        load(written(tmp_path, "node.id=1\n=5\n"), {})
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidConfig, match="is not UTF-8"):
        load(tmp_path / "binary", {})


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"num.partitions": "0"}, "num.partitions: Value must be at least 1"),
        ({"num.partitions": "many"}, "num.partitions: Not a number of type INT"),
        ({"num.io.threads": "x"}, "num.io.threads: Not a number"),
        ({"compression.type": "rar"}, "String must be one of"),
        ({"node.id": "1", "broker.id": "2"}, "they are one number"),
        ({"broker.id": "-1"}, "node.id is 1|broker.id: must be"),
        ({"process.roles": "controller"}, "process.roles: a controller needs the controllers of its quorum"),
        ({"log.dirs": " , "}, "names no directory"),
        ({"log.dirs": "/a,/a"}, "twice"),
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"log.roll.ms": "-3"}, "log.roll.ms must be"),
        ({"log.roll.jitter.hours": "-3"}, "log.roll.jitter"),
        ({"log.cleaner.dedupe.buffer.size": "1000"}, "1MB per cleaner thread"),
        ({"log.cleaner.threads": "200"}, "1MB per cleaner thread"),
        ({"group.min.session.timeout.ms": "100", "group.max.session.timeout.ms": "50"}, "is more than"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "classic cannot be left out"),
        ({"group.consumer.assignors": "round"}, "String must be one of: uniform, range"),
        ({"group.consumer.session.timeout.ms": "1000"}, "greater than or equal to group.consumer.min.session"),
        ({"group.consumer.session.timeout.ms": "90000"}, "less than or equal to group.consumer.max.session"),
        ({"group.consumer.max.heartbeat.interval.ms": "1000"}, "greater than or equal to group.consumer.min.heartbeat"),
        (
            {"group.share.heartbeat.interval.ms": "45000", "group.share.max.heartbeat.interval.ms": "45000"},
            "group.share.heartbeat.interval.ms must be less than group.share.session.timeout.ms",
        ),
        ({"group.share.max.share.sessions": "100"}, "is less than group.share.max.size"),
        ({"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"}, "is more than"),
        ({"listeners": "nonsense"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://:99999"}, "NAME://host:port"),
        ({"listeners": ""}, "nothing to listen at"),
        ({"listeners": "A://:1"}, "add A:PLAINTEXT"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "two listeners named PLAINTEXT"),
        ({"listeners": "PLAINTEXT://:1,SSL://:1"}, "two listeners at port 1"),
        ({"listener.security.protocol.map": "A:TELNET"}, "TELNET"),
        ({"listener.security.protocol.map": "A"}, "name:value"),
        ({"advertised.listeners": "OTHER://a:1"}, "add OTHER:PLAINTEXT"),
        ({"advertised.listeners": "SSL://a:1"}, "is not in listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "no address that a client could dial"),
        ({"max.connections.per.ip.overrides": "a:b"}, "Not a number"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(overrides: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        load(None, overrides)


def test_several_listeners() -> None:
    config, _ = load(
        None,
        {
            "listeners": "inside://:0, OUTSIDE://[::1]:9094",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "advertised.listeners": "OUTSIDE://box:19094",
        },
    )
    assert config.listeners == (
        Listener("INSIDE", "", 0, "PLAINTEXT"),
        Listener("OUTSIDE", "::1", 9094, "PLAINTEXT"),
    )
    assert config.advertised_listeners == (Listener("OUTSIDE", "box", 19094, "PLAINTEXT"),)


def test_the_file_that_comes_with_kafka_is_understood(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        process.roles=broker,controller
        node.id=1
        controller.quorum.bootstrap.servers=localhost:9093
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093
        inter.broker.listener.name=PLAINTEXT
        advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
        controller.listener.names=CONTROLLER
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
        num.network.threads=3
        num.io.threads=8
        socket.send.buffer.bytes=102400
        log.dirs=/tmp/kraft-combined-logs
        num.partitions=1
        offsets.topic.replication.factor=1
        log.retention.hours=168
        """,
    )
    config, warnings = load(file, {})
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://:9092"]
    assert [str(listener) for listener in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert sorted(warning.split(":")[0] for warning in warnings) == [
        "controller.listener.names",
        "num.io.threads",
        "num.network.threads",
    ]


def test_the_more_precise_of_several_settings_wins() -> None:
    given = {"log.retention.hours": "1", "log.retention.minutes": "2"}
    assert load(None, given)[0].log_config({}).retention_ms == 120_000
    assert load(None, given | {"log.retention.ms": "3"})[0].log_config({}).retention_ms == 3
    assert load(None, {"log.retention.hours": "-3"})[0].log_config({}).retention_ms == -1
    assert load(None, {"log.retention.hours": "-1"})[0].log_config({}).retention_ms == -1
    assert load(None, {"log.roll.hours": "1"})[0].log_config({}).segment_ms == 3_600_000
    assert load(None, {"log.flush.scheduler.interval.ms": "9"})[0].log_config({}).flush_ms == 9


def test_a_topics_own_settings_win() -> None:
    config, _ = load(None, {"log.retention.ms": "5", "log.flush.before.ack": "false"})
    assert config.log_config({"retention.ms": "6"}).retention_ms == 6
    assert config.log_config({}).flush_before_ack is False
    assert config.log_config({"flush.before.ack": "true"}).flush_before_ack is True
    both = config.log_config({"cleanup.policy": "compact,delete"})
    assert (both.compact, both.delete) == (True, True)
    assert config.log_config({"internal.segment.bytes": "100"}).segment_bytes == 100
    with pytest.raises(InvalidConfig):
        config.log_config({"retention.ms": "x"})


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"nope": "1"}, "^Unknown topic config name: nope$"),
        ({"retention.ms": "-5"}, "^Invalid value -5 for configuration retention.ms: Value must be at least -1$"),
        ({"cleanup.policy": "compact,shred"}, "^Invalid value shred for configuration cleanup.policy: String must be"),
        ({"min.cleanable.dirty.ratio": "2"}, "^Invalid value 2.0 for .*: Value must be no more than 1$"),
        ({"max.compaction.lag.ms": "5", "min.compaction.lag.ms": "10"}, r"\(10\) > max.compaction.lag.ms \(5\)$"),
        ({"remote.storage.enable": "true"}, "^Tiered Storage functionality is disabled"),
        ({"leader.replication.throttled.replicas": "x"}, r"^Invalid value \[x\] for .* must be the literal '\*'"),
    ],
)
def test_topic_settings_are_refused_in_kafkas_words(overrides: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        load(None, {})[0].topics.check(overrides)


def test_dynamic_changes_make_another_config() -> None:
    config, _ = load(None, {"log.retention.hours": "1"})
    changed = config.with_changes({"log.retention.ms": "5"})
    assert (config.log_config({}).retention_ms, changed.log_config({}).retention_ms) == (3_600_000, 5)
    with pytest.raises(InvalidConfig):
        config.with_changes({"log.retention.ms": "0"})
