"""`ottla pipeline redrive` as a process: what a kill leaves, what filters leave, and what comes back."""

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from ottla.pipeline import progress
from ottla.pipeline.progress import Figures
from ottla.pipeline.redrive import REDRIVES
from ottla.pipeline.rows import dead_letters
from ottla.pipeline.run_store import FlowRecord, RunRecord, run_directory
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.topic import Topic
from tests.support.eventually import eventually

MADE_MS = time.time_ns() // 1_000_000 - 3_600_000


def command(bootstrap: str, letters: Topic, *options: str) -> list[str]:
    return [
        sys.executable, "-m", "ottla.cli.main", "pipeline", "redrive", letters.name, "--bootstrap", bootstrap, *options,
    ]  # fmt: skip


def redrive(bootstrap: str, letters: Topic, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(bootstrap, letters, *options), capture_output=True, text=True, check=False, timeout=100
    )


def reject(source: Topic, letters: Topic, count: int, *, first: int = 0, redrives: int = 0, topic: str = "") -> None:
    """Dead letters as a job writes them: a few to each transaction. Every third has another reason."""
    producer = Producer({"bootstrap.servers": letters.bootstrap, "transactional.id": letters.name})
    producer.init_transactions(60)
    for number in range(first, first + count):
        if number % 7 == 0 or number == first:
            producer.begin_transaction()
        headers = {
            "trace": str(number),
            **({REDRIVES: str(redrives)} if redrives else {}),
            dead_letters.REASON: "check failed: has carrier" if number % 3 == 0 else "malformed JSON",
            dead_letters.SOURCE_TOPIC: topic or source.name,
            dead_letters.SOURCE_PARTITION: str(number % 3),
            dead_letters.SOURCE_OFFSET: str(number),
            dead_letters.SOURCE_TIMESTAMP: str(MADE_MS + number),
            dead_letters.VIEW: "clean",
        }
        producer.produce(
            letters.name,
            f"value {number}",
            f"key {number}",
            partition=number % 2,
            headers=[(name, value.encode()) for name, value in headers.items()],
        )
        if number % 7 == 6 or number == first + count - 1:
            producer.commit_transaction(60)


def end(topic: Topic) -> int:
    """Records in the topic so far, also of transactions that are open or were aborted, and ends of transactions."""
    consumer = Consumer({"bootstrap.servers": topic.bootstrap, "group.id": "ends"})
    try:
        numbers = consumer.list_topics(topic.name, timeout=10).topics[topic.name].partitions
        return sum(consumer.get_watermark_offsets(TopicPartition(topic.name, number), 10)[1] for number in numbers)
    finally:
        consumer.close()


def keys(messages: list[Message]) -> list[str]:
    return sorted((message.key() or b"").decode() for message in messages)


def expected_keys(numbers: range) -> list[str]:
    return sorted(f"key {number}" for number in numbers)


def redrive_and_kill(source: Topic, letters: Topic, after: int, options: tuple[str, ...] = ()) -> None:
    """Kill it when a first transaction is over and a second has begun."""
    already = end(source)
    arguments = command(source.bootstrap, letters, *options, "--rate", "150")
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        eventually(lambda: end(source) > already + after or process.poll() is not None, timeout_s=60)
        assert process.poll() is None, "it was done before it could be killed"
    finally:
        process.kill()
        _, complaint = process.communicate()
    assert complaint == ""


def test_killed_and_taken_over_nothing_is_lost_or_doubled(bootstrap: str, new_topic: TopicFactory) -> None:
    source, letters = new_topic(3), new_topic(2)
    reject(source, letters, 1200)
    redrive_and_kill(source, letters, after=150, options=("--reason", "has carrier"))  # one third: gaps to remember
    redrive_and_kill(source, letters, after=200)
    already = end(source)
    slow = subprocess.Popen(
        command(bootstrap, letters, "--rate", "15"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        eventually(lambda: end(source) > already + 30 or slow.poll() is not None, timeout_s=60)

        whole = redrive(bootstrap, letters, "--json")

        _, complaint = slow.communicate(timeout=60)
    finally:
        slow.kill()
    assert slow.returncode == 1
    assert complaint == f"ottla: another redrive of {letters.name} has taken over; it goes on where this one was\n"

    assert whole.returncode == 0, whole.stderr
    sent_last = sum(row["letters"] for row in json.loads(whole.stdout)["letters"] if row["fate"] == "sent")
    assert 0 < sent_last < 1200 - 150 - 15
    found = source.messages()  # the client reads committed records only
    assert keys(found) == expected_keys(range(1200))
    for message in found:
        number = int((message.key() or b"").split()[1])
        assert message.value() == f"value {number}".encode()
        assert message.headers() == [("trace", str(number).encode()), (REDRIVES, b"1")]
        assert message.partition() == number % 3
        assert message.timestamp()[1] > MADE_MS + 3_000_000  # an old one would be deleted by retention
    assert redrive(bootstrap, letters).stderr == "0 letters sent\n"


def test_filters_leave_letters_for_later_and_poison_stays(bootstrap: str, new_topic: TopicFactory) -> None:
    source, letters, elsewhere = new_topic(3), new_topic(2), new_topic(1)
    reject(source, letters, 9)
    middle_ms = time.time_ns() // 1_000_000 + 1
    eventually(lambda: time.time_ns() // 1_000_000 > middle_ms)
    reject(source, letters, 6, first=9, redrives=2)
    reject(source, letters, 1, first=15, topic="no-such-topic")

    dry = redrive(bootstrap, letters, "--reason", "JSON", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "10 letters would be sent; nothing was changed\n")
    assert f"10\twould be sent\t{source.name}\tmalformed JSON" in dry.stdout.splitlines()
    assert source.messages() == []

    some = redrive(bootstrap, letters, "--reason", "JSON", "--until", str(middle_ms))
    assert (some.returncode, some.stderr) == (0, "6 letters sent\n")
    rest = redrive(bootstrap, letters, "--flow", "clean", "--max-redrives", "2")
    assert rest.returncode == 1
    assert rest.stderr == (
        "3 letters sent\n"
        "1 letter came from topics that do not exist, or from none; name one with --to\n"
        "6 letters had been sent 2 times before and came back; see --max-redrives\n"
    )
    assert keys(source.messages()) == expected_keys(range(9))

    assert redrive(bootstrap, letters, "--to", elsewhere.name, "--keep-time").stderr == "7 letters sent\n"
    assert keys(elsewhere.messages()) == expected_keys(range(9, 16))
    counts = {dict(message.headers() or [])[REDRIVES] for message in elsewhere.messages()}
    assert counts == {b"1", b"3"}
    assert [message.timestamp()[1] for message in elsewhere.messages()] == [
        MADE_MS + int((message.key() or b"").split()[1]) for message in elsewhere.messages()
    ]
    assert len(source.messages()) == 9


def test_letters_that_would_be_late_again_are_counted_before_they_are_sent(
    bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, letters = new_topic(3), new_topic(2)
    reject(source, letters, 10)
    shop = run_directory(tmp_path, "shop")
    shop.path.mkdir(parents=True)
    flows = {"hourly": FlowRecord([f"topic {source.name}"], "topic hourly", "append", "1 second", "h")}
    shop.write(RunRecord("shop", "shop", "shop.py", "", bootstrap, "local", 1, 1.0, state="stopped", flows=flows))
    watermark = datetime.fromtimestamp((MADE_MS + 3) / 1000, UTC)
    progress.append(shop.progress, Figures("hourly", 1.0, watermark=watermark.isoformat(timespec="milliseconds")))
    home = ("--home", str(tmp_path))

    dry = redrive(bootstrap, letters, "--dry-run", "--json", *home)
    assert [(each["flow"], each["run"], each["letters"]) for each in json.loads(dry.stdout)["late_again"]] == [
        ("hourly", "shop", 4)
    ]
    some = redrive(bootstrap, letters, "--leave-late", *home)
    left = "4 letters left, because a watermark would set them aside again"
    assert (some.returncode, some.stderr.splitlines()) == (0, ["6 letters sent", left])
    assert keys(source.messages()) == expected_keys(range(4, 10))

    rest = redrive(bootstrap, letters, *home)

    said = rest.stderr.splitlines()
    assert said[0].startswith("4 of 4 letters would be late again; --leave-late leaves them")
    assert said[1].startswith("  4 in the flow hourly of shop, whose watermark is at 20")
    assert said[1].endswith(": by the time of their records")
    assert said[2:] == ["4 letters sent"]


def test_a_wrong_name_is_met_with_the_nearest(bootstrap: str, new_topic: TopicFactory) -> None:
    letters = new_topic()
    wrong = redrive(bootstrap, Topic(bootstrap, letters.name + "x"))
    assert wrong.returncode == 1
    assert f"did you mean '{letters.name}'?" in wrong.stderr
    assert redrive(bootstrap, letters, "--to", letters.name).returncode == 2


def test_letters_are_mended_on_the_way(bootstrap: str, new_topic: TopicFactory, tmp_path: Path) -> None:
    source, letters = new_topic(3), new_topic(2)
    reject(source, letters, 6)
    mend = tmp_path / "mend.py"
    mend.write_text(
        "def mend(letter):\n"
        "    if letter.value == b'value 5':\n"
        "        raise ValueError('beyond repair')\n"
        "    return {'was': letter.value.decode()} if 'JSON' in letter.reason else None\n"
    )

    dry = redrive(bootstrap, letters, "--with", str(mend), "--dry-run")
    assert (dry.returncode, source.messages()) == (1, [])
    assert '- value 1\n+ {"was": "value 1"}\n' in dry.stdout
    assert "\tleft: not mended\t" in dry.stdout

    done = redrive(bootstrap, letters, "--with", str(mend), "--json")
    fates = {(row["fate"], row["reason"]): row["letters"] for row in json.loads(done.stdout)["letters"]}
    assert fates.pop(("sent", "malformed JSON")) == 3
    assert fates.pop(("left: not mended", "check failed: has carrier")) == 2
    ((fate, reason),) = fates
    assert (fate, "beyond repair" in reason) == ("left: not mended", True)
    assert sorted(message.value() or b"" for message in source.messages()) == [
        b'{"was": "value %d"}' % number for number in (1, 2, 4)
    ]
    mend.write_text(
        "def mend(letter):\n    return letter.value * 1_000_000 if letter.value == b'value 5' else letter\n"
    )
    large = redrive(bootstrap, letters, "--with", str(mend))
    (place,) = [
        f"{each.topic()}-{each.partition()} at offset {each.offset()}"
        for each in letters.messages()
        if each.value() == b"value 5"
    ]
    assert (large.returncode, len(source.messages())) == (1, 3)
    assert f"the letter in {place} cannot be sent to {source.name}: " in large.stderr
    assert "Broker: Message size too large" in large.stderr

    rest = redrive(bootstrap, letters)
    assert (rest.returncode, rest.stderr) == (0, "3 letters sent\n")
