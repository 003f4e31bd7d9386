"""Files of one, read by the other: Kafka's tools and broker on what Ottla wrote, Ottla on what Kafka's broker wrote."""

import json
import re
import shutil
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.metadata_records import normal, without_secrets
from tests.support.metadata_state import (
    TOKEN,
    Described,
    described_by,
    metadata_shell,
    part_of_log,
    replayed,
    unordered,
)
from tests.support.tool_server import kafka_tool

from ottla.admin import Admin, QuotaEntity
from ottla.cli.app import run
from ottla.cli.terminal import exits
from ottla.clock import SystemClock
from ottla.cluster.image import ResourceType as ConfigType
from ottla.cluster.metadata_log.framing import framed
from ottla.cluster.metadata_log.levels import HIGHEST, RANGES
from ottla.cluster.metadata_log.snapshots import snapshot_records
from ottla.cluster.metadata_log.state import ClusterState
from ottla.config.log import LogConfig
from ottla.errors import CorruptMessage
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicName, uuid_to_text
from ottla.ids import TopicPartition as Partition
from ottla.log import checkpoints
from ottla.log.directory import LogDirectory
from ottla.log.fs import RealFileSystem
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import Origin, ProducerState, decode_snapshot
from ottla.log.reader import ColdRead
from ottla.metadata.adoption import find_adoptable
from ottla.metadata.quorum.snapshots import SnapshotWriter, file_name, read_records
from ottla.metadata.quorum_bootstrap import records_of_new_term
from ottla.quorum.replicas import OffsetAndEpoch
from ottla.records.batch import Compression, is_intact, iter_batches
from ottla.records.control import ControlType, EndTransaction, encode_end_transaction
from ottla.records.record import Record, decode_records, encode_batch

FS = RealFileSystem()
TOPIC = "flights"
TP = Partition(TopicName(TOPIC), PartitionId(0))
SEGMENT_BYTES = 1 << 20  # the least that Kafka takes
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES)
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
NOW_MS = SystemClock().now_ms()


def _values(number: int) -> bytes:
    return b"%d:" % number + Random(number).randbytes(number * 7 % 900)


def _read_all(log: PartitionLog) -> list[Record]:
    """All records but markers; every batch is whole and intact."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 200_000, upper_bound=log.log_end_offset, min_one_message=True)
        data = (result.run() if isinstance(result, ColdRead) else result).data
        for header in iter_batches(data):
            assert is_intact(data, header)
            if not header.is_control:
                records += decode_records(data, header)
            offset = Offset(header.next_offset)
    return records


# --- Kafka reads Ottla ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ottlas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition's directory that Ottla wrote: all codecs, producers, epochs, transactions, several segments."""
    directory = tmp_path_factory.mktemp("ottla") / str(TP)
    config = LogConfig(segment_bytes=60_000, index_interval_bytes=1000)
    log = PartitionLog.open(directory, TP, config, fs=FS, clock=SystemClock(), clean_shutdown=True)
    sequence = 0
    for number in range(300):
        count = 1 + number % 4
        records = [
            Record(i, NOW_MS + 10 * number + i, b"key%d" % number, _values(number), (("h", b"1"), ("n", None)))
            for i in range(count)
        ]
        batch = encode_batch(
            records, compression=Compression(number % 5), producer_id=7, producer_epoch=1, base_sequence=sequence
        )
        log.append_as_leader(batch, LeaderEpoch(number // 100))
        sequence += count
    for kind in (ControlType.ABORT, ControlType.COMMIT, ControlType.ABORT):
        sequence = log.producer_state.producers[9].last_sequence + 1 if 9 in log.producer_state.producers else 0
        records = [Record(0, NOW_MS, b"k", b"in a transaction")]
        batch = encode_batch(records, producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True)
        log.append_as_leader(batch, LeaderEpoch(3))
        marker = encode_end_transaction(EndTransaction(kind, 4, NOW_MS), producer_id=9, producer_epoch=0)
        log.append_as_leader(marker, LeaderEpoch(3), origin=Origin.COORDINATOR)
    log.high_watermark = log.log_end_offset
    assert len(log.segments) > 3
    log.close()
    return directory


def _dump(files: list[Path], *options: str) -> str:
    output = kafka_tool("DumpLogSegments", "--files", ",".join(map(str, files)), *options).stdout
    for complaint in ("mismatch", "isvalid: false", "not in increasing", "Exception", "Error", "non-consecutive"):
        assert complaint not in output, output[max(0, output.find(complaint) - 500) :][:1500]
    return output


def test_dump_log_segments_reads_every_record(ottlas: Path) -> None:
    files = sorted(ottlas.glob("*.log"))
    output = _dump(files, "--deep-iteration", "--print-data-log")
    log = PartitionLog.open(ottlas, TP, CONFIG, fs=FS, clock=SystemClock(), clean_shutdown=True)
    records = _read_all(log)
    log.release()
    dumped = re.findall(r"^\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+)", output, re.M)
    data = [tuple(map(int, row)) for row in dumped]
    expected = [(r.offset, r.timestamp_ms, len(r.key or b""), len(r.value or b"")) for r in records]
    markers = len(data) - len(expected)
    assert markers in (0, 3)
    assert [row for row in data if row in set(expected)] == expected
    assert output.count("isTransactional: true") >= 6
    assert output.count("endTxnMarker: ABORT") == 2
    assert output.count("endTxnMarker: COMMIT") == 1


def test_dump_log_segments_agrees_with_the_indexes(ottlas: Path) -> None:
    offsets = _dump(sorted(ottlas.glob("*.index")), "--verify-index-only")
    assert "passed the sanity check" in offsets or offsets.count("Dumping") == len(list(ottlas.glob("*.index")))
    entries = _dump(sorted(ottlas.glob("*.index")))
    assert len(re.findall(r"^offset: \d+ position: \d+", entries, re.M)) > 50
    times = _dump(sorted(ottlas.glob("*.timeindex")))
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", times, re.M)) > 50


def test_dump_log_segments_reads_snapshots_and_aborted_transactions(ottlas: Path) -> None:
    last = max(ottlas.glob("*.snapshot"))
    output = _dump([last, *sorted(ottlas.glob("*.txnindex"))])
    assert re.search(r"producerId: 7 producerEpoch: 1 coordinatorEpoch: -1 .* lastSequence: 749 ", output)
    assert re.search(r"producerId: 9 producerEpoch: 0 coordinatorEpoch: 4 .* lastSequence: 2 ", output)
    assert output.count("version: 0 producerId: 9 firstOffset") == 2


# --- Ottla reads Kafka ---------------------------------------------------------------------------------------------


class Written:
    """What a genuine broker has got, and its files after a kill and after a clean stop."""

    def __init__(
        self, committed: list[bytes], aborted: list[bytes], killed: Path, stopped: Path, described: Described
    ) -> None:
        self.described = described
        self.committed = committed
        self.aborted = aborted
        self.killed = killed
        self.stopped = stopped


def _produce(bootstrap: str) -> tuple[list[bytes], list[bytes]]:
    committed: list[bytes] = []
    aborted: list[bytes] = []
    for number, codec in enumerate(CODECS):
        settings = {"compression.type": codec, "enable.idempotence": True, "batch.num.messages": 20}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        for at in range(number * 1000, number * 1000 + 1000):
            producer.produce(TOPIC, _values(at), b"%d" % at, partition=0, headers={"n": b"%d" % at})
            committed.append(_values(at))
        assert producer.flush(60) == 0
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", "linger.ms": 0})
    transactional.init_transactions(60)
    for number in range(6):
        transactional.begin_transaction()
        values = [b"transaction %d record %d" % (number, i) for i in range(5)]
        for value in values:
            transactional.produce(TOPIC, value, partition=0)
        assert transactional.flush(60) == 0
        if number % 2:
            transactional.abort_transaction(60)
            aborted += values
        else:
            transactional.commit_transaction(60)
            committed += values
    Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"}).init_transactions(60)  # waits for the markers
    return committed, aborted


def _describe(bootstrap: str) -> None:
    """Have a rule, a password and a quota in the metadata."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    rule = AclBinding(
        ResourceType.TOPIC,
        TOPIC,
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([rule])[rule].result(30)
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    password = UserScramCredentialUpsertion("alice", credential, b"secret", b"salt")
    admin.alter_user_scram_credentials([password])["alice"].result(30)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", credential, b"secret")])["bob"].result(30)
    removed = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([removed])["bob"].result(30)
    admin.create_topics([NewTopic("gone", 2, 1)])["gone"].result(30)
    admin.delete_topics(["gone"])["gone"].result(30)
    admin.create_topics([NewTopic("gone", 1, 1, config={"cleanup.policy": "compact"})])["gone"].result(30)
    admin.create_partitions([NewPartitions("gone", 3)])["gone"].result(30)
    with Admin(bootstrap) as others:
        others.alter_quotas(QuotaEntity(user="alice"), {"producer_byte_rate": 1e6})
        others.alter_quotas(QuotaEntity(user="a/b", client_id=""), {"request_percentage": 12.5})
        others.alter_quotas(QuotaEntity(ip=""), {"connection_creation_rate": 7.0})
        others.alter_quotas(QuotaEntity(client_id="c"), {"consumer_byte_rate": 5.0})
        others.alter_quotas(QuotaEntity(client_id="c"), {"consumer_byte_rate": None})


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Written:
    base = tmp_path_factory.mktemp("kafka")
    properties = {
        "offsets.topic.num.partitions": "2",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "metadata.log.max.record.bytes.between.snapshots": "3000",
    }
    with GenuineKafka(properties=properties) as kafka:
        settings = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "4096"}
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])[TOPIC].result(30)
        _describe(kafka.bootstrap)
        committed, aborted = _produce(kafka.bootstrap)
        described = described_by(kafka.bootstrap)
        kafka.kill()
        shutil.copytree(kafka.log_dir, base / "killed")
        kafka.start()
        kafka.stop()
        shutil.copytree(kafka.log_dir, base / "stopped")
    return Written(committed, aborted, base / "killed", base / "stopped", described)


def _open(path: Path) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory(path, fs=FS, clock=SystemClock())
    directory.acquire(cluster_id=directory.owner()["cluster.id"], node_id=BrokerId(1))
    directory.load(lambda _: CONFIG)
    return directory, directory.logs[TP]


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_ottla_opens_what_kafka_wrote(kafkas: Written, tmp_path: Path, how: str) -> None:
    path = tmp_path / how
    shutil.copytree(getattr(kafkas, how), path)
    directory, log = _open(path)
    assert directory.was_clean == (how == "stopped")
    values = [record.value for record in _read_all(log)]
    assert sorted(filter(None, values)) == sorted(kafkas.committed + kafkas.aborted)
    assert len(log.segments) >= 2
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == log.log_end_offset
    assert len(log.aborted_transactions(0, log.log_end_offset)) == 3
    assert log.topic_id is not None
    assert log.latest_epoch >= 0
    idempotent = [entry for entry in log.producer_state.producers.values() if entry.last_sequence == 999]
    assert len(idempotent) == len(CODECS)
    middle = _read_all(log)[2500]
    found = log.offset_for_timestamp(middle.timestamp_ms)
    assert found is not None
    assert found.offset <= middle.offset
    assert found.timestamp_ms == middle.timestamp_ms
    assert not log.append_as_leader(encode_batch([Record(0, NOW_MS, b"k", b"one more")]), LeaderEpoch(99)).duplicate
    directory.close()
    directory, log = _open(path)
    assert len(_read_all(log)) == len(values) + 1
    directory.close()


def test_rebuilt_indexes_are_kafkas_byte_for_byte(kafkas: Written, tmp_path: Path) -> None:
    path = tmp_path / "stopped"
    shutil.copytree(kafkas.stopped, path)
    partition = path / str(TP)
    originals = {
        file.name: file.read_bytes() for file in partition.iterdir() if file.suffix in (".index", ".timeindex")
    }
    assert len(originals) >= 4
    for name in originals:
        (partition / name).unlink()
    directory, _ = _open(path)
    directory.close()
    assert {name: (partition / name).read_bytes() for name in originals} == originals


def test_small_files_are_kafkas_byte_for_byte(kafkas: Written) -> None:
    partition = kafkas.stopped / str(TP)
    topic_id = checkpoints.read_partition_metadata(FS, str(partition / "partition.metadata"))
    assert topic_id is not None
    assert checkpoints.encode_partition_metadata(topic_id) == (partition / "partition.metadata").read_bytes()
    epochs = checkpoints.read_epochs(FS, str(partition / "leader-epoch-checkpoint"))
    assert checkpoints.encode_epochs(epochs) == (partition / "leader-epoch-checkpoint").read_bytes()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        offsets = checkpoints.read_offsets(FS, str(kafkas.stopped / name))
        assert checkpoints.encode_offsets(offsets) == (kafkas.stopped / name).read_bytes()
    for snapshot in partition.glob("*.snapshot"):
        theirs = decode_snapshot(snapshot.read_bytes())
        state = ProducerState()
        state.load(theirs, 0)
        assert state.encode() == snapshot.read_bytes()


def test_ottla_recovers_the_producers_that_kafka_knew(kafkas: Written, tmp_path: Path) -> None:
    path = tmp_path / "stopped"
    shutil.copytree(kafkas.stopped, path)
    partition = path / str(TP)
    theirs = {entry.producer_id: entry for entry in decode_snapshot(max(partition.glob("*.snapshot")).read_bytes())}
    for snapshot in partition.glob("*.snapshot"):
        snapshot.unlink()
    (path / ".kafka_cleanshutdown").unlink()
    directory, log = _open(path)
    ours = log.producer_state.producers
    assert set(ours) == set(theirs)
    for producer_id, entry in theirs.items():
        assert (ours[producer_id].epoch, ours[producer_id].last_sequence) == (entry.epoch, entry.last_sequence)
        assert ours[producer_id].coordinator_epoch == entry.coordinator_epoch
        assert ours[producer_id].batches[-1].last_offset == entry.batches[-1].last_offset
    directory.close()


def test_the_metadata_log_is_spelled_out_as_by_kafka(kafkas: Written, capsys: pytest.CaptureFixture[str]) -> None:
    directory = kafkas.stopped / "__cluster_metadata-0"
    snapshots = sorted(directory.glob("*.checkpoint"))
    files = [*sorted(directory.glob("*.log")), *snapshots[-1:], *kafkas.stopped.glob("bootstrap.checkpoint")]
    assert len(files) == 3
    assert run(["log", "verify", str(directory)]) == exits.OK
    capsys.readouterr()
    seen = set()
    for file in files:
        assert run(["log", "dump", "--decode", "--json", str(file)]) == exits.OK
        rows = list(map(json.loads, capsys.readouterr().out.splitlines()))
        printed = kafka_tool("DumpLogSegments", "--cluster-metadata-decoder", "--files", str(file)).stdout
        theirs = re.findall(r"^\| offset: (\d+) .*?(?:payload: | Snapshot\w+ )(\{.*\})$", printed, re.M)
        ours = [row for row in rows if row["kind"] != "LeaderChangeMessage"]
        assert [row["offset"] for row in ours] == [int(offset) for offset, _ in theirs]
        for row, (_, text) in zip(ours, theirs, strict=True):
            payload = json.loads(text)
            if "type" in payload:
                assert row["kind"].replace("Record", "").lower() + "record" == payload["type"].replace("_", "").lower()
                assert row["version"] == payload["version"]
                payload = payload["data"]
            assert normal(row["fields"]) == normal(without_secrets(payload, row["fields"]))
        seen |= {row["kind"] for row in rows}
    assert {
        "RegisterBrokerRecord",
        "TopicRecord",
        "PartitionRecord",
        "PartitionChangeRecord",
        "ConfigRecord",
        "FeatureLevelRecord",
        "ProducerIdsRecord",
        "AccessControlEntryRecord",
        "UserScramCredentialRecord",
        "ClientQuotaRecord",
        "LeaderChangeMessage",
        "SnapshotHeaderRecord",
        "SnapshotFooterRecord",
    } <= seen


def test_the_newest_snapshot_of_the_metadata_is_taken_over(kafkas: Written, tmp_path: Path) -> None:
    path = tmp_path / "stopped"
    shutil.copytree(kafkas.stopped, path)
    adopted = find_adoptable([path], BrokerId(1))
    assert adopted is not None
    assert TopicName(TOPIC) in adopted.topics
    assert adopted.configs[ConfigType.TOPIC, TOPIC]["segment.bytes"] == str(SEGMENT_BYTES)
    newest = max((path / "__cluster_metadata-0").glob("*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(CorruptMessage, match=f"{newest.name} is damaged or incomplete"):
        find_adoptable([path], BrokerId(1))


def test_the_metadata_log_and_its_snapshot_make_one_state(kafkas: Written) -> None:
    directory = kafkas.stopped / "__cluster_metadata-0"
    newest = max(directory.glob("*.checkpoint"))
    snapshot = list(read_records(FS, str(newest)))
    log = part_of_log(directory, int(newest.name.partition("-")[0]))
    of_log, of_snapshot = replayed(log), replayed(snapshot)
    assert of_log.image()._replace(features_epoch=0) == of_snapshot.image()._replace(features_epoch=0)
    assert len(of_log.image().topics[TopicName("gone")].partitions) == 3
    # What genuine Kafka has written of it is what is written of it here.
    assert unordered(snapshot_records(of_log)) == unordered(snapshot)
    assert unordered(snapshot_records(of_snapshot)) == unordered(snapshot)


def test_a_cluster_begins_as_one_of_kafkas(kafkas: Written) -> None:
    log = part_of_log(kafkas.stopped / "__cluster_metadata-0")
    first, level = records_of_new_term(ClusterState(), [], is_new=True, min_insync=1)
    assert level == HIGHEST
    assert log[: len(first)] == [framed(record, level) for record in first]
    state = replayed(log)
    assert state.brokers[1].features == state.controllers[1].features == RANGES


def test_the_metadata_log_is_what_clients_were_answered(kafkas: Written) -> None:
    image = replayed(part_of_log(kafkas.killed / "__cluster_metadata-0")).image()
    assert Described.of(image) == kafkas.described


def test_kafkas_shell_and_dump_read_a_snapshot_of_ottlas(kafkas: Written, tmp_path: Path) -> None:
    state = replayed(part_of_log(kafkas.stopped / "__cluster_metadata-0"))
    state.take(TOKEN)
    at = OffsetAndEpoch(42, 3)
    writer = SnapshotWriter(FS, str(tmp_path), at, last_append_time_ms=NOW_MS, of_voters=[], now_ms=NOW_MS)
    for value in snapshot_records(state):
        writer.add(value)
    writer.finish()
    file = tmp_path / file_name(at)
    dumped = _dump([file], "--cluster-metadata-decoder")
    assert dumped.count('"type":"PARTITION_RECORD"') == sum(
        len(topic.partitions) for topic in state.image().topics.values()
    )
    assert '"tokenId":"token"' in dumped
    topic = state.image().topics[TopicName("gone")]
    at_partition = f"/image/topics/byId/{uuid_to_text(topic.topic_id)}/2"
    shown = metadata_shell(
        file, "cat", at_partition, "/image/features/metadataVersion", "/image/producerIds/nextProducerId"
    )
    assert f"leaderEpoch={topic.partitions[2].leader_epoch}" in shown
    assert shown.splitlines()[1:] == ["Optional[4.3-IV0]", str(state.next_producer_id)]


def test_kafka_serves_what_ottla_wrote(tmp_path: Path) -> None:
    with GenuineKafka(tmp_path / "kafka", properties={"offsets.topic.num.partitions": "2"}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce(TOPIC, b"from kafka", partition=0)
        assert producer.flush(30) == 0
        kafka.stop()
        directory, log = _open(kafka.log_dir)
        expected = [b"from kafka"]
        for number in range(2000):
            value = _values(number)
            batch = encode_batch([Record(0, NOW_MS, b"k", value)], compression=Compression(number % 5))
            log.append_as_leader(batch, log.latest_epoch)
            expected.append(value)
        assert len(log.segments) >= 1
        log.high_watermark = log.log_end_offset
        directory.close()
        kafka.start()
        assert _consume(kafka.bootstrap, len(expected)) == expected
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce(TOPIC, b"from kafka again", partition=0)
        assert producer.flush(30) == 0
        assert _consume(kafka.bootstrap, len(expected) + 1)[-1] == b"from kafka again"


def _consume(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    values: list[bytes] = []

    def all_there() -> bool:
        for message in consumer.consume(1000, timeout=1):
            if message.error():
                raise KafkaException(message.error())
            values.append(message.value() or b"")
        return len(values) >= count

    try:
        eventually(all_there, timeout_s=60)
    finally:
        consumer.close()
    return values
