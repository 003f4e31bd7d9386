"""`ottla log dump` and `ottla log verify`, on files made here."""

import json
import struct
from pathlib import Path
from uuid import UUID

import pytest

from ottla.cli.app import run
from ottla.cli.terminal import exits
from ottla.groups.consumer.records import ClassicMember, CurrentAssignment, MemberState, MemberSubscription
from ottla.groups.events import Assignor
from ottla.groups.records import GroupRecordFormat
from ottla.ids import GroupId, MemberId, PartitionId, TopicId, TopicName, TopicPartition, uuid_to_text
from ottla.log.checkpoints import encode_epochs, encode_offsets, encode_partition_metadata
from ottla.log.producer_state import ProducerState
from ottla.protocol.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    TopicRecord,
    UserScramCredentialRecord,
    encode_record,
)
from ottla.records.batch import Compression, read_header
from ottla.records.record import Record, encode_batch

T0_MS = 1_767_225_600_000


def batch(first: int, count: int, compression: Compression = Compression.NONE) -> bytes:
    records = [Record(first + n, T0_MS + first + n, b"k%d" % n, b"value %d" % (first + n)) for n in range(count)]
    return bytes(encode_batch(records, compression=compression, leader_epoch=0))


class Partition:
    """A directory `orders-0` of two segments: offsets 0 to 9 in batches of 4, 4 and 2, and 10 to 14 in one of 5."""

    def __init__(self, log_dir: Path) -> None:
        self.directory = log_dir / "orders-0"
        self.directory.mkdir(parents=True)
        self.batches = [batch(0, 4), batch(4, 4, Compression.ZSTD), batch(8, 2)]
        self.log = self.directory / "00000000000000000000.log"
        self.log.write_bytes(b"".join(self.batches))
        self.index = self.log.with_suffix(".index")
        self.index.write_bytes(struct.pack(">ii", 7, len(self.batches[0])))
        self.time_index = self.log.with_suffix(".timeindex")
        self.time_index.write_bytes(struct.pack(">qi", T0_MS + 7, 7))
        self.last_log = self.directory / "00000000000000000010.log"
        self.last_log.write_bytes(batch(10, 5))
        self.epochs = self.directory / "leader-epoch-checkpoint"
        self.epochs.write_bytes(encode_epochs([(0, 0)]))
        self.snapshot = self.directory / "00000000000000000010.snapshot"
        self.snapshot.write_bytes(ProducerState(10).encode())

    def position(self, number: int) -> int:
        return sum(map(len, self.batches[:number]))

    def set_recovery_point(self, offset: int) -> None:
        points = {TopicPartition(TopicName("orders"), PartitionId(0)): offset}
        (self.directory.parent / "recovery-point-offset-checkpoint").write_bytes(encode_offsets(points))


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path / "data")


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def verified(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = exits.OK) -> dict[str, object]:
    assert run(["log", "verify", *arguments, "--json"]) == code
    report: dict[str, object] = json.loads(capsys.readouterr().out)
    return report


def problems(report: dict[str, object]) -> list[tuple[str, int | None, str]]:
    found = report["problems"]
    assert isinstance(found, list)
    return [(Path(each["file"]).name, each["position"], each["severity"]) for each in found]


def test_dump_of_batches(partition: Partition, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", str(partition.log)]) == exits.OK
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[:4] + row[5:6] for row in rows] == [
        ["0", "0", "3", "4", "none"],
        [str(partition.position(1)), "4", "7", "4", "zstd"],
        [str(partition.position(2)), "8", "9", "2", "none"],
    ]
    assert {row[-1] for row in rows} == {"ok"}


def test_dump_of_a_directory_goes_through_its_segments(
    partition: Partition, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", "dump", str(partition.directory), "--json"]) == exits.OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["base_offset"] for row in rows] == [0, 4, 8, 10]


def test_dump_of_records_from_an_offset(partition: Partition, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", str(partition.log), "--records", "--offset", "5", "-n", "2", "--json"]) == exits.OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["topic"], row["partition"], row["offset"], row["key"], row["value"]) for row in rows] == [
        ("orders", 0, 4, "k0", "value 4"),
        ("orders", 0, 5, "k1", "value 5"),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000000.timeindex", "2026-01-01T00:00:00.007Z\t7\n"),
        ("leader-epoch-checkpoint", "epoch 0 from offset 0\n"),
        ("00000000000000000010.snapshot", ""),
    ],
)
def test_dump_of_other_files(
    partition: Partition, capsys: pytest.CaptureFixture[str], name: str, expected: str
) -> None:
    assert run(["log", "dump", str(partition.directory / name)]) == exits.OK
    assert capsys.readouterr().out == expected


def test_dump_spells_out_what_the_group_coordinator_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    member = MemberSubscription(
        GroupId("g"),
        MemberId("m"),
        None,
        "rack",
        "c",
        "/h",
        frozenset({TopicName("u"), TopicName("t")}),
        None,
        300,
        "uniform",
        ClassicMember(10, (Assignor("range", b"abc"),)),
    )
    topic_id = TopicId(UUID(int=5))
    current = CurrentAssignment(
        GroupId("g"), MemberId("m"), 2, 1, MemberState.UNREVOKED_PARTITIONS, {topic_id: frozenset({1, 0})}, {}
    )
    written = [GroupRecordFormat().encode(record) for record in (member, current)]
    log = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(encode_batch([Record(n, T0_MS, key, value) for n, (key, value) in enumerate(written)]))
    assert run(["log", "dump", "--decode", "--json", str(log)]) == exits.OK
    first, second = (json.loads(line)["fields"] for line in capsys.readouterr().out.splitlines())
    assert first["topic_names"] == ["t", "u"]
    assert first["classic"]["protocols"] == [{"name": "range", "metadata": "3 bytes"}]
    assert second["state"] == "UNREVOKED_PARTITIONS"
    assert second["assigned"] == {str(topic_id): [0, 1]}


def metadata_file(directory: Path, name: str, values: list[bytes]) -> Path:
    """A file of KRaft's metadata log: the header of a snapshot, and then `values`."""
    directory.mkdir(exist_ok=True)
    header = Record(0, T0_MS, b"\0\0\0\3", b"\0\0" + T0_MS.to_bytes(8, "big") + b"\0")
    records = [Record(number, T0_MS, None, value) for number, value in enumerate(values, 1)]
    file = directory / name
    file.write_bytes(encode_batch([header], control=True) + encode_batch(records, base_offset=1))
    return file


METADATA = [
    encode_record(TopicRecord(name="t", topic_id=UUID(int=5)), 0),
    encode_record(PartitionChangeRecord(partition_id=2, topic_id=UUID(int=5), isr=[1, 2]), 1),
    encode_record(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"), 0),
    encode_record(ConfigRecord(resource_type=4, resource_name="1", name="x.SSL.Keystore.Password", value="pw"), 0),
    encode_record(
        UserScramCredentialRecord(
            name="u", mechanism=1, salt=b"s", stored_key=b"k" * 32, server_key=b"K" * 32, iterations=4096
        ),
        0,
    ),
]


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("__cluster_metadata-0", "00000000000000000000.log"),
        ("__cluster_metadata-0", "00000000000000000010-0000000001.checkpoint"),
        ("data", "bootstrap.checkpoint"),
    ],
)
def test_dump_spells_out_the_metadata_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], directory: str, name: str
) -> None:
    file = metadata_file(tmp_path / directory, name, METADATA)
    assert run(["log", "dump", "--decode", str(file)]) == exits.OK
    topic_id = "AAAAAAAAAAAAAAAAAAAABQ"
    assert [line.split("\t") for line in capsys.readouterr().out.splitlines()] == [
        ["0", "SnapshotHeaderRecord", "0", f"version=0 last_contained_log_timestamp={T0_MS}"],
        ["1", "TopicRecord", "0", f"name=t topic_id={topic_id}"],
        ["2", "PartitionChangeRecord", "1", f"partition_id=2 topic_id={topic_id} isr=[1, 2]"],
        ["3", "ConfigRecord", "0", "resource_type=2 resource_name=t name=retention.ms value=5"],
        ["4", "ConfigRecord", "0", "resource_type=4 resource_name=1 name=x.SSL.Keystore.Password value=(hidden)"],
        [
            "5",
            "UserScramCredentialRecord",
            "0",
            "name=u mechanism=1 salt=1 bytes stored_key=32 bytes server_key=32 bytes iterations=4096",
        ],
    ]
    assert run(["log", "dump", "--decode", "--max", "2", "--json", str(file)]) == exits.OK
    assert json.loads(capsys.readouterr().out.splitlines()[1]) == {
        "offset": 1,
        "kind": "TopicRecord",
        "version": 0,
        "fields": {"name": "t", "topic_id": topic_id},
    }


def test_verify_finds_a_snapshot_of_metadata_that_is_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    metadata_file(directory, "00000000000000000000.log", METADATA)
    snapshot = metadata_file(directory, "00000000000000000006-0000000001.checkpoint", METADATA)
    footer = encode_batch([Record(6, T0_MS, b"\0\0\0\4", b"\0\0\0")], base_offset=6, control=True)
    begun = snapshot.read_bytes()
    snapshot.write_bytes(begun + footer)
    assert verified(capsys, str(directory))["problems"] == []
    for content, problem in (
        (begun, "the snapshot has no footer: it is incomplete"),
        (b"", "the snapshot has no header"),
        (begun + footer[:-2], f"the snapshot ends at position {len(begun)}: "),
    ):
        snapshot.write_bytes(content)
        assert run(["log", "verify", "--json", str(directory)]) == exits.FAILED
        (found,) = json.loads(capsys.readouterr().out)["problems"]
        assert (found["file"], found["severity"]) == (str(snapshot), "damage")
        assert problem in found["problem"]


def test_dump_passes_over_metadata_of_a_newer_kafka(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = [b"\1\x63\0\0", b"\1\2\x09\0", *METADATA[:1]]
    file = metadata_file(tmp_path / "__cluster_metadata-0", "00000000000000000000.log", values)
    assert run(["log", "dump", "--decode", str(file)]) == exits.FAILED
    out, err = capsys.readouterr()
    assert [line.split("\t")[:2] for line in out.splitlines()] == [
        ["0", "SnapshotHeaderRecord"],
        ["1", "-"],
        ["2", "-"],
        ["3", "TopicRecord"],
    ]
    assert "offset 1: metadata record type 99 (version 0) is not known (and 1 more); is it of a newer Kafka?" in err


def test_dump_ends_where_an_index_is_empty_room(partition: Partition, capsys: pytest.CaptureFixture[str]) -> None:
    for index, entry_bytes in ((partition.index, 8), (partition.time_index, 12)):
        index.write_bytes(index.read_bytes() + bytes(1000 * entry_bytes))
        assert run(["log", "dump", str(index)]) == exits.OK
        assert len(capsys.readouterr().out.splitlines()) == 1


def test_dump_of_a_directory_without_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", str(tmp_path)]) == exits.FAILED
    assert f"there are no .log files in {tmp_path}" in capsys.readouterr().err


def test_a_partition_without_records_has_no_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ\n")
    assert run(["log", "dump", str(partition)]) == exits.OK
    assert not capsys.readouterr().out
    for path in (tmp_path, partition):
        assert run(["log", "verify", str(path)]) == exits.OK
        assert "0 segments" in capsys.readouterr().err


def test_dump_of_a_file_that_belongs_to_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders.csv").write_bytes(b"a,b\n" * 1000)
    assert run(["log", "dump", str(tmp_path / "orders.csv")]) == exits.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert "orders.csv is no file of a log" in err


def test_dump_shows_what_comes_before_the_damage(partition: Partition, capsys: pytest.CaptureFixture[str]) -> None:
    flip(partition.log, partition.position(1) + 70)
    assert run(["log", "dump", str(partition.log)]) == exits.OK
    assert [line.split("\t")[-1] for line in capsys.readouterr().out.splitlines()] == ["ok", "WRONG", "ok"]
    assert run(["log", "dump", "-r", str(partition.log)]) == exits.FAILED
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4
    assert f"position {partition.position(1)}: its CRC is wrong" in err


def test_verify_finds_nothing_wrong(partition: Partition, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (partition.directory.parent, partition.directory):
        report = verified(capsys, str(path), "--records")
        assert report["problems"] == []
        assert (report["segments"], report["batches"], report["records"]) == (2, 4, 15)
    assert verified(capsys, str(partition.log))["records"] == 10


def test_verify_finds_every_flipped_bit(partition: Partition, capsys: pytest.CaptureFixture[str]) -> None:
    intact = partition.log.read_bytes()
    expected_offset_and_epoch = {*range(8), *range(12, 16)}  # outside the CRC, checked by their order or not at all
    for position in range(0, len(intact), 7):
        at = next(n for n in (2, 1, 0) if position >= partition.position(n))
        if position - partition.position(at) in expected_offset_and_epoch:
            continue
        flip(partition.log, position)
        report = verified(capsys, str(partition.directory), code=exits.FAILED)
        assert (partition.log.name, partition.position(at), "damage") in problems(report), position
        partition.log.write_bytes(intact)


def test_verify_reports_two_damages_and_counts_the_rest(
    partition: Partition, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(partition.log, 66)
    flip(partition.last_log, 66)
    partition.set_recovery_point(15)
    report = verified(capsys, str(partition.directory.parent), code=exits.FAILED)
    assert problems(report) == [(partition.log.name, 0, "damage"), (partition.last_log.name, 0, "damage")]
    assert report["batches"] == 2


@pytest.mark.parametrize(("recovery_point", "severity", "code"), [(10, "torn tail", 0), (15, "damage", 1)])
def test_what_a_crash_leaves_is_damage_only_if_it_was_synced(
    partition: Partition, capsys: pytest.CaptureFixture[str], recovery_point: int, severity: str, code: int
) -> None:
    partition.set_recovery_point(recovery_point)
    partition.last_log.write_bytes(partition.last_log.read_bytes()[:-9])
    report = verified(capsys, str(partition.directory.parent), code=code)
    assert problems(report) == [(partition.last_log.name, 0, severity)]


def test_offsets_must_ascend(partition: Partition, capsys: pytest.CaptureFixture[str]) -> None:
    partition.log.write_bytes(partition.batches[0] + partition.batches[0])
    partition.index.unlink()
    report = verified(capsys, str(partition.log), code=exits.FAILED)
    assert (partition.log.name, len(partition.batches[0]), "damage") in problems(report)


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">ii", 7, 13),  # no batch begins there
        struct.pack(">ii", 2, 81),  # made up below: an offset before the batch
        struct.pack(">ii", 7, 1 << 20),  # past the end
        struct.pack(">iiii", 7, 1000, 6, 1001),  # out of order
        b"\x00\x00\x00",  # torn
    ],
    ids=["between batches", "offset too small", "past the end", "out of order", "torn"],
)
def test_indexes_must_fit(partition: Partition, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    if content == struct.pack(">ii", 2, 81):
        content = struct.pack(">ii", 2, partition.position(1))
    partition.index.write_bytes(content)
    report = verified(capsys, str(partition.directory), code=exits.FAILED)
    assert problems(report)[0] == (partition.index.name, None, "damage")


def test_room_set_aside_in_indexes_is_no_damage(partition: Partition, capsys: pytest.CaptureFixture[str]) -> None:
    partition.index.write_bytes(partition.index.read_bytes() + bytes(80))
    partition.time_index.write_bytes(partition.time_index.read_bytes() + bytes(120))
    assert verified(capsys, str(partition.directory))["problems"] == []


@pytest.mark.parametrize(
    "content",
    [struct.pack(">qi", T0_MS, 99), struct.pack(">qiqi", T0_MS + 3, 3, T0_MS, 7)],
    ids=["beyond", "backwards"],
)
def test_time_indexes_must_fit(partition: Partition, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    partition.time_index.write_bytes(content)
    report = verified(capsys, str(partition.directory), code=exits.FAILED)
    assert problems(report) == [(partition.time_index.name, None, "damage")]


def test_snapshots_and_checkpoints_are_checked(partition: Partition, capsys: pytest.CaptureFixture[str]) -> None:
    flip(partition.snapshot, 3)
    partition.epochs.write_text("0\n5\n")
    report = verified(capsys, str(partition.directory), code=exits.FAILED)
    assert {name for name, _, _ in problems(report)} == {partition.snapshot.name, partition.epochs.name}


def test_batches_that_do_not_unpack_are_found_on_request(
    partition: Partition, capsys: pytest.CaptureFixture[str]
) -> None:
    from ottla.records.batch import seal

    broken = bytearray(batch(0, 4))
    broken[read_header(broken).end_position - 1] = 0x7E  # claims headers that are not there
    seal(broken)
    partition.log.write_bytes(broken)
    partition.index.unlink()
    partition.time_index.unlink()
    assert verified(capsys, str(partition.log))["problems"] == []
    report = verified(capsys, str(partition.log), "--records", code=exits.FAILED)
    assert problems(report) == [(partition.log.name, 0, "damage")]


def test_nothing_is_changed(partition: Partition, capsys: pytest.CaptureFixture[str]) -> None:
    flip(partition.log, 66)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition.directory.iterdir()}
    verified(capsys, str(partition.directory), code=exits.FAILED)
    run(["log", "dump", str(partition.directory)])
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition.directory.iterdir()} == before


def test_a_place_without_logs_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "verify", str(tmp_path)]) == exits.USAGE
    assert "no log files in" in capsys.readouterr().err


def test_strays_are_listed_and_removed_only_when_asked_to(
    partition: Partition, capsys: pytest.CaptureFixture[str]
) -> None:
    log_dir = partition.directory.parent
    stray = log_dir / f"gone-3.{'a' * 32}-stray"
    stray.mkdir()
    (stray / "00000000000000000000.log").write_bytes(b"x" * 1000)
    topic_id = TopicId(UUID(int=77))
    (stray / "partition.metadata").write_bytes(encode_partition_metadata(topic_id))
    (log_dir / f"going-0.{'b' * 32}-delete").mkdir()

    def strays(*more: str) -> str:
        assert run(["log", "strays", str(log_dir), *more]) == exits.OK
        return capsys.readouterr().out

    (row,) = json.loads(strays("--json"))["strays"]
    assert (row["topic"], row["partition"], row["path"]) == ("gone", 3, str(stray))
    assert row["topic_id"] == uuid_to_text(topic_id)
    assert row["bytes"] == 1000 + (stray / "partition.metadata").stat().st_size
    assert "gone" in strays()
    assert run(["log", "strays", str(log_dir), "--remove"]) == exits.USAGE, "nobody can be asked"
    assert "the only copy" in capsys.readouterr().err
    assert stray.exists()
    strays("--remove", "--yes")
    assert sorted(path.name for path in log_dir.iterdir()) == [f"going-0.{'b' * 32}-delete", "orders-0"]
    assert json.loads(strays("--json"))["strays"] == []
