"""kcat (librdkafka's command line), as the distribution packages it: years older than the library in Python."""

import json
import subprocess
from typing import Any

import pytest
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.requirements import require


def kcat(bootstrap: str, *arguments: str, stdin: str = "", timeout_s: float = 60.0) -> str:
    """Run kcat to its end; its standard output.

    Raises:
        AssertionError: it ended with an error.
    """
    done = subprocess.run(
        [require("kcat"), "-b", bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"kcat {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def read_json(bootstrap: str, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """What a consumer reads up to the end, as kcat's JSON envelopes."""
    lines = kcat(bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J", *arguments).splitlines()
    return [json.loads(line) for line in lines]


def test_the_cluster_is_listed(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(3)
    text = kcat(bootstrap, "-L", "-t", topic)
    assert f"broker 1 at {bootstrap} (controller)" in text
    assert f'topic "{topic}" with 3 partitions:' in text
    assert "partition 2, leader 1, replicas: 1, isrs: 1" in text
    listing = json.loads(kcat(bootstrap, "-L", "-J"))
    assert [broker["name"] for broker in listing["brokers"]] == [bootstrap]
    assert topic in {entry["topic"] for entry in listing["topics"]}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back_as_they_went(bootstrap: str, new_topic: NewTopicFactory, codec: str) -> None:
    topic = new_topic(2)
    text = "".join(f"key{number}:value {number} {'x' * 100}\n" for number in range(200))
    kcat(bootstrap, "-P", "-t", topic, "-p", "1", "-K:", "-z", codec, "-H", "origin=kcat", "-H", "empty=", stdin=text)
    records = read_json(bootstrap, topic)
    assert [f"{record['key']}:{record['payload']}\n" for record in records] == text.splitlines(keepends=True)
    assert {record["partition"] for record in records} == {1}
    assert {tuple(record["headers"]) for record in records} == {("origin", "kcat", "empty", "")}
    assert [record["offset"] for record in records] == list(range(200))


def test_tombstones(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    kcat(bootstrap, "-P", "-t", topic, "-K:", "-Z", stdin="a:1\nb:2\na:\n")
    assert [(record["key"], record["payload"]) for record in read_json(bootstrap, topic)] == [
        ("a", "1"),
        ("b", "2"),
        ("a", None),
    ]


@pytest.mark.parametrize("settings", [("-X", "enable.idempotence=true"), ("-X", "acks=1"), ("-X", "acks=0")])
def test_producer_settings(bootstrap: str, new_topic: NewTopicFactory, settings: tuple[str, ...]) -> None:
    topic = new_topic()
    kcat(bootstrap, "-P", "-t", topic, *settings, stdin="".join(f"{number}\n" for number in range(100)))
    assert [record["payload"] for record in read_json(bootstrap, topic)] == [str(number) for number in range(100)]


def test_offsets_from_the_start_the_end_and_a_time(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    kcat(bootstrap, "-P", "-t", topic, stdin="".join(f"{number}\n" for number in range(50)))
    at = ("-C", "-t", topic, "-p", "0", "-e", "-q")
    assert kcat(bootstrap, *at, "-o", "47").split() == ["47", "48", "49"]
    assert kcat(bootstrap, *at, "-o", "-2").split() == ["48", "49"]
    assert kcat(bootstrap, *at, "-o", "beginning", "-c", "2").split() == ["0", "1"]
    first = read_json(bootstrap, topic)[0]["ts"]
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:{first}").split()[-2:] == ["offset", "0"]
    assert kcat(bootstrap, *at, "-o", f"s@{first}", "-c", "1").split() == ["0"]
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:-1").split()[-2:] == ["offset", "50"]


def test_a_group_goes_on_where_it_stopped(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic, group = new_topic(3), new_name()
    for partition in range(3):
        kcat(bootstrap, "-P", "-t", topic, "-p", str(partition), stdin="".join(f"{n}\n" for n in range(10)))
    member = ("-G", group, "-q", "-X", "auto.offset.reset=earliest")
    first = kcat(bootstrap, *member, "-c", "12", topic).split()
    second = kcat(bootstrap, *member, "-c", "18", topic).split()
    assert sorted(first + second, key=int) == [str(number) for number in range(10) for _ in range(3)]


def test_a_big_message(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(**{"max.message.bytes": "5000000"})
    text = "z" * 4_000_000
    kcat(bootstrap, "-P", "-t", topic, "-X", "message.max.bytes=5000000", stdin=text)
    assert [record["payload"] for record in read_json(bootstrap, topic)] == [text]
