"""`ottla produce` and `ottla consume`."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.compat.cli.program import OttlaProgram
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually

from ottla.cli.terminal import exits


def numbers(count: int) -> str:
    return "".join(f"{number}\n" for number in range(count))


def lines_of(text: str) -> list[str]:
    return text.splitlines()


def test_lines_in_lines_out(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    produced = ottla("produce", topic, stdin="one\n\nthree\twith tab\nlast without newline")
    assert produced.stdout == ""
    assert produced.stderr == "4 records acknowledged\n"
    assert ottla("consume", topic, "--exit-at-end").stdout == "one\n\nthree\twith tab\nlast without newline\n"
    assert ottla("produce", topic, "--quiet", stdin="x\n").stderr == ""


def test_bytes_stay_bytes(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    ottla("produce", topic, stdin=b"\xff\x00\r\n")
    assert ottla("consume", topic, "-e").stdout.encode(errors="surrogateescape") == b"\xff\x00\r\n"


# Values of the Java client's murmur2 for these keys, as its own unit test states them.
JAVA_MURMUR2 = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


def test_keys_go_where_the_java_client_puts_them(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic(7)
    ottla("produce", topic, "-k", ":", stdin="".join(f"{key}:v\n" for key in JAVA_MURMUR2))
    shown = lines_of(ottla("consume", topic, "-e", "--partitions", "--keys").stdout)
    assert {line.split("\t")[1]: int(line.split("\t")[0]) for line in shown} == {
        key: (value & 0x7FFFFFFF) % 7 for key, value in JAVA_MURMUR2.items()
    }


def test_every_part_of_a_record(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic(2)
    ottla(
        "produce", topic, "-k", r"\t", "--headers", "--header", "source=test", "-p", "1",
        "--timestamp", "2026-01-01T00:00:00Z", "--null-marker", "NULL", "--compression", "zstd",
        stdin="a:1,b:2\tk\tv\n\tk\tNULL\n",
    )  # fmt: skip
    every = ("--topics", "--timestamps", "--partitions", "--offsets", "--headers", "--keys")
    assert lines_of(ottla("consume", topic, "-e", *every).stdout) == [
        f"{topic}\t2026-01-01T00:00:00.000Z\t1\t0\ta:1,b:2,source:test\tk\tv",
        f"{topic}\t2026-01-01T00:00:00.000Z\t1\t1\tsource:test\tk\tnull",
    ]
    assert json.loads(lines_of(ottla("consume", topic, "-e", "--json").stdout)[1]) == {
        "topic": topic,
        "partition": 1,
        "offset": 1,
        "timestamp_ms": 1767225600000,
        "headers": [["source", "test"]],
        "key": "k",
        "value": None,
    }


def test_a_topic_copied_through_json_is_the_same(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    source, copy = new_topic(3), new_topic(3)
    ottla("produce", source, "-k", ":", "--header", "h=1", stdin="".join(f"k{n % 5}:v{n}\n" for n in range(50)))
    exported = ottla("consume", source, "-e", "--json").stdout
    ottla("produce", copy, "--json", stdin=exported)

    def content(text: str) -> list[str]:
        return sorted(line.replace(source, "T").replace(copy, "T") for line in lines_of(text))

    assert content(ottla("consume", copy, "-e", "--json").stdout) == content(exported)


def test_produce_from_a_file(ottla: OttlaProgram, new_topic: NewTopicFactory, tmp_path: Path) -> None:
    topic = new_topic()
    path = tmp_path / "lines"
    path.write_text(numbers(20_000))
    assert ottla("produce", topic, str(path)).stderr == "20,000 records acknowledged\n"
    assert ottla("consume", topic, "-e").stdout == numbers(20_000)


def test_where_reading_starts(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic(2)
    ottla("produce", topic, "-p", "0", "--timestamp", "2h", stdin="old0\nold1\nold2\n")
    ottla("produce", topic, "-p", "0", stdin="new0\n")
    ottla("produce", topic, "-p", "1", stdin="other0\nother1\n")

    def read(*options: str) -> list[str]:
        return sorted(lines_of(ottla("consume", topic, "-e", *options).stdout))

    assert read() == read("--from-beginning") == ["new0", "old0", "old1", "old2", "other0", "other1"]
    assert read("--offset", "-1") == ["new0", "other1"]
    assert read("--offset", "2", "-p", "0") == ["new0", "old2"]
    assert read("--offset", "end") == []
    assert read("--since", "1h") == ["new0", "other0", "other1"]
    assert read("--since", "3h", "-p", "0") == ["new0", "old0", "old1", "old2"]
    assert read("-p", "1") == ["other0", "other1"]
    assert "has offsets 0 to 4 only" in ottla("consume", topic, "-p", "0", "-o", "9", code=1).stderr
    assert "has no partition 2" in ottla("consume", topic, "-p", "2", code=1).stderr


def test_the_last_records_are_counted_without_markers_and_what_was_aborted(
    ottla: OttlaProgram, bootstrap: str, new_topic: NewTopicFactory
) -> None:
    topic = new_topic(3)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(10)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, f"v{number}".encode(), partition=0)
        if number == 0:
            producer.produce(topic, b"w0", partition=1)
        producer.flush()
        if number % 3 == 0:
            producer.commit_transaction(10)
        else:
            producer.abort_transaction(10)

    def last(count: int, *options: str) -> list[str]:
        return sorted(lines_of(ottla("consume", topic, "-e", "--offset", f"-{count}", *options).stdout))

    assert last(1) == ["v3", "w0"]
    assert last(2) == last(9) == ["v0", "v3", "w0"]
    assert last(2, "--isolation", "read_uncommitted", "-p", "0") == ["v4", "v5"]


def test_where_reading_stops(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    ottla("produce", topic, stdin=numbers(5))
    assert ottla("consume", topic, "--from-beginning", "-n", "3").stdout == numbers(3)
    short = ottla("consume", topic, "--from-beginning", "-n", "6", "--timeout", "1", code=1)
    assert short.stdout == numbers(5)
    assert "5 of 6 records read" in short.stderr
    begin_s = time.monotonic()
    assert ottla("consume", topic, "--timeout", "1").stdout == ""
    assert time.monotonic() - begin_s < 40


def test_several_topics(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    first, second = new_topic(), new_topic()
    ottla("produce", first, stdin="a\n")
    ottla("produce", second, stdin="b\n")
    shown = lines_of(ottla("consume", first, second, "-e", "--topics").stdout)
    assert sorted(shown) == sorted([f"{first}\ta", f"{second}\tb"])


def test_new_records_are_shown_as_they_come(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    reader = ottla.start("consume", topic, "--from-beginning", "-n", "2")
    try:
        ottla("produce", topic, stdin="first\n")
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"first\n"
        ottla("produce", topic, stdin="second\n")
        assert reader.stdout.readline() == b"second\n"
        assert reader.wait(20) == 0
    finally:
        reader.kill()
        reader.communicate()


def test_bad_lines_stop_and_say_where(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    failed = ottla("produce", topic, "-k", ":", stdin="a:1\nb:2\nnonsense\nc:3\n", code=1)
    assert failed.stderr == "ottla: line 3: no key separator ':'; stopped there\n2 records acknowledged\n"
    assert ottla("consume", topic, "-e", "--keys").stdout == "a\t1\nb\t2\n"


def test_refused_records_are_named_and_the_others_written(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic(1, **{"max.message.bytes": "1000"})
    failed = ottla("produce", topic, "-X", "linger.ms=0", stdin=f"a\n{'x' * 5000}\nb\n", code=1)
    assert "ottla: line 2 was not written: it is larger than the topic's max.message.bytes" in failed.stderr
    assert "2 records acknowledged, 1 failed" in failed.stderr
    assert ottla("consume", topic, "-e").stdout == "a\nb\n"


def test_a_missing_topic_is_made_on_request_only(ottla: OttlaProgram, new_name: NewNameFactory) -> None:
    topic = new_name()
    assert "--create makes it" in ottla("produce", topic, stdin="a\n", code=1).stderr
    assert not ottla("topic", "list", topic).stdout
    ottla("produce", topic, "--create", stdin="a\n")
    assert ottla("consume", topic, "-e").stdout == "a\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, exits.INTERRUPTED), (signal.SIGTERM, exits.TERMINATED)])
def test_an_interrupted_producer_loses_nothing(
    ottla: OttlaProgram, new_topic: NewTopicFactory, number: signal.Signals, code: int
) -> None:
    topic = new_topic()
    writer = ottla.start("produce", topic)
    try:
        assert writer.stdin is not None
        writer.stdin.write(numbers(5000).encode())
        writer.stdin.flush()
        eventually(lambda: ottla.json("topic", "describe", topic)[0]["partitions"][0]["records"] > 0)
        writer.send_signal(number)
        _, err = writer.communicate(timeout=30)
    finally:
        writer.kill()
    assert writer.returncode == code
    present = lines_of(ottla("consume", topic, "-e").stdout)
    assert err.decode() == f"interrupted: {len(present):,} records acknowledged\n"
    assert present == lines_of(numbers(len(present)))


def test_an_interrupted_consumer_ends_cleanly(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    ottla("produce", topic, stdin="a\n")
    reader = ottla.start("consume", topic, "--from-beginning")
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"a\n"
        reader.send_signal(signal.SIGINT)
        out, err = reader.communicate(timeout=20)
    finally:
        reader.kill()
    assert (reader.returncode, out, err) == (exits.INTERRUPTED, b"", b"")


def test_a_reader_that_has_enough_ends_the_consumer_quietly(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    ottla("produce", topic, stdin=numbers(50_000))
    for options in (["--exit-at-end"], ["--from-beginning"]):  # while writing; while waiting for more
        reader = ottla.start("consume", topic, *options)
        try:
            assert reader.stdout is not None
            assert reader.stderr is not None
            assert reader.stdout.readline() == b"0\n"
            reader.stdout.close()
            assert reader.wait(20) == 0
            assert reader.stderr.read() == b""
        finally:
            reader.kill()
            reader.wait()
            for pipe in (reader.stdin, reader.stderr):
                assert pipe is not None
                pipe.close()


def test_a_group_goes_on_where_it_stopped(
    ottla: OttlaProgram, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(), new_name()
    ottla("produce", topic, stdin=numbers(10))
    assert ottla("consume", topic, "-g", group, "--from-beginning", "-n", "4").stdout == numbers(4)
    rest = ottla("consume", topic, "-g", group, "--exit-at-end").stdout
    assert lines_of(rest) == [str(number) for number in range(4, 10)]
    assert ottla("consume", topic, "-g", group, "--exit-at-end").stdout == ""


def test_an_interrupted_member_has_committed_what_it_printed(
    ottla: OttlaProgram, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(), new_name()
    ottla("produce", topic, stdin=numbers(3))
    reader = ottla.start("consume", topic, "-g", group, "--from-beginning")
    try:
        assert reader.stdout is not None
        assert [reader.stdout.readline() for _ in range(3)] == [b"0\n", b"1\n", b"2\n"]
        reader.send_signal(signal.SIGTERM)
        reader.communicate(timeout=30)
    finally:
        reader.kill()
    assert reader.returncode == exits.TERMINATED
    ottla("produce", topic, stdin="3\n")
    assert ottla("consume", topic, "-g", group, "--exit-at-end").stdout == "3\n"


def test_properties_reach_the_client(ottla: OttlaProgram, new_topic: NewTopicFactory, tmp_path: Path) -> None:
    topic = new_topic()
    config = tmp_path / "client.properties"
    config.write_text("key.serializer=ignored\nlinger.ms=1\n")
    ottla("produce", topic, "--command-config", str(config), "-X", "acks=1", stdin="a\n")
    failed = ottla("produce", topic, "-X", "lingr.ms=1", stdin="a\n", code=1)
    assert failed.stderr == "ottla: there is no client property 'lingr.ms'; did you mean 'linger.ms'?\n"


def test_a_terminal_is_protected(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    ottla("produce", topic, stdin=b"\x1b[31mred\n")
    code, seen = ottla.on_terminal("consume", topic, "-e")
    assert code == 0
    assert "\\x1b[31mred" in seen
    assert "1 record" in seen


def test_progress_is_drawn_beside_a_redirected_output(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    writer = subprocess.Popen(ottla.command("produce", topic), stdin=subprocess.PIPE, env=ottla.environment())
    assert writer.stdin is not None
    for _ in range(10):
        writer.stdin.write(numbers(100).encode())
        writer.stdin.flush()
    writer.stdin.close()
    assert writer.wait(30) == 0
    assert len(lines_of(ottla("consume", topic, "-e").stdout)) == 1000
