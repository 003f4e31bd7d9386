"""How soon the console shows records of large topics, and what that costs.

`python -m benches.console_load` prints a line of JSON for each figure: seconds until the first report, until the search
has ended, and CPU seconds of the console and of the broker meanwhile. `--records` is a million of 1 KB by default,
`--many` ten million of 100 B, which are searched for the newest ones alone; then a value of 50 MB is shown.
Give it two quiet cores: the broker, the console's librdkafka and its filter work at the same time.
"""

import argparse
import json
import os
import random
import string
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.ottla_process import OttlaProcess

LARGE_BYTES: Final = 50 << 20
FILTERS: Final = (
    ("a number", "value.amount > 9990"),
    ("a text that is nowhere", 'value.name == "nobody"'),
    ("an expression that needs every value", "len(value.tags) > 5"),
    ("a part of the record that needs no decoding", "timestamp < 0"),
)


def main() -> None:
    """Fill the topics, and ask."""
    parser = argparse.ArgumentParser(prog="python -m benches.console_load", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--many", type=int, default=10_000_000)
    given = parser.parse_args()
    properties = {"message.max.bytes": str(2 * LARGE_BYTES), "replica.fetch.max.bytes": str(2 * LARGE_BYTES)}
    with OttlaProcess(properties=properties) as broker:
        fill(broker.bootstrap, given.records, given.many)
        with console(broker.bootstrap) as (url, pid):
            pids = pid, broker.pid
            measure("newest 100, first", url, "wide", pids, most="100")
            for _ in range(3):
                measure("newest 100", url, "wide", pids, most="100")
            for what, text in FILTERS:
                measure(f"filter: {what}", url, "wide", pids, **{"from": "oldest", "filter": text})
            if given.many:
                measure("newest 100 of many", url, "many", pids, most="100")
                measure(
                    "from an offset of many", url, "many", pids, **{"from": "offset", "offset": str(given.many // 8)}
                )
            before = rss(pid)
            measure("a value of 50 MB", url, "large", pids)
            note("memory of the console", before_mb=before, after_mb=rss(pid), peak_mb=rss(pid, "VmHWM"))


def fill(bootstrap: str, records: int, many: int) -> None:
    """Four partitions each, but for the large value."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 4, 1) for name in ("wide", "many", "large")]).values():
        future.result(30)
    rng = random.Random(1)
    filler = {f"field{number}": "".join(rng.choices(string.ascii_letters, k=20)) for number in range(20)}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "message.max.bytes": 2 * LARGE_BYTES})
    for number in range(records):
        value = {"id": number, "amount": number % 10_000, "name": f"user{number % 5000}", "tags": ["a", "b"], **filler}
        text = json.dumps(value)
        send(producer, "wide", text + " " * (1000 - len(text)), f"k{number % 1000}")
    for number in range(many):
        send(producer, "many", b'{"id": %d}' % number + b" " * 80, None)
    send(producer, "large", b"x" * LARGE_BYTES, None)
    producer.flush()


def send(producer: Producer, topic: str, value: str | bytes, key: str | None) -> None:
    """Wait where the queue is full."""
    while True:
        try:
            producer.produce(topic, value, key)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(0.1)


@contextmanager
def console(bootstrap: str) -> Iterator[tuple[str, int]]:
    """`ottla console`, its address and its process."""
    command = [str(Path(sys.executable).with_name("ottla")), "console", "--port", "0", "--bootstrap", bootstrap]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    yield process.stderr.readline().split()[4].rstrip("/"), process.pid
    process.terminate()
    process.wait(20)


def measure(what: str, url: str, topic: str, pids: tuple[int, int], **query: str) -> None:
    """A search, from the request to its end."""
    used = [cpu_s(pid) for pid in pids]
    began = time.monotonic()
    first = None
    last = ""
    with urllib.request.urlopen(f"{url}/topics/{topic}/records/search?{urlencode(query)}", timeout=300) as answer:
        for line in answer:
            if line.startswith(b"event: part") and first is None:
                first = time.monotonic() - began
            if b" offsets" in line:
                last = line.decode().removeprefix("data: ").strip()
    whole = time.monotonic() - began
    console_s, broker_s = (round(cpu_s(pid) - before, 2) for pid, before in zip(pids, used, strict=True))
    note(
        what,
        first_s=round(first or 0, 3),
        whole_s=round(whole, 3),
        console_cpu_s=console_s,
        broker_cpu_s=broker_s,
        said=last,
    )


def cpu_s(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss(pid: int, name: str = "VmRSS") -> float:
    """Memory of a process, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1000


def note(what: str, **figures: Any) -> None:
    """A line of JSON."""
    print(json.dumps({"what": what, **figures}), flush=True)


if __name__ == "__main__":
    main()
