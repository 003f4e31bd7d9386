"""What key-ordered delivery of a share group is worth: one partition, one slow key, eight consumers of the Java client.

`python -m benches.share_key_order` starts a broker, reads the same records three times, and prints a table: by one
member (the only way to keep the order of keys in a partition without it), by eight members with
`share.delivery.order=key`, and by eight members in any order, as KIP-932 has it. Times are from the first record in
hand to the last one done; beside them, what the checker of `tests.support.share_workers` has to say about order.
"""

import argparse
from typing import Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.ottla_process import OttlaProcess
from tests.support.share_groups import prepare_coordinator, set_group, topic_id
from tests.support.share_workers import Handled, ShareWorkers, disorder

SLOW_KEY: Final = "slow"
NS: Final = 1e9


class Load(NamedTuple):
    """How many records there are, how many of them have the slow key, and how long they take."""

    records: int
    slow_every: int
    slow_ms: int
    fast_ms: int
    keys: int

    @property
    def work_s(self) -> float:
        """What one member has to do."""
        slow = self.records // self.slow_every
        return (slow * self.slow_ms + (self.records - slow) * self.fast_ms) / 1_000

    @property
    def slow_key_s(self) -> float:
        """What has to be done one after the other however many members there are."""
        return self.records // self.slow_every * self.slow_ms / 1_000


class Outcome(NamedTuple):
    """One reading of all records."""

    name: str
    seconds: float
    complaints: int
    deliveries: int


def produce(bootstrap: str, topic: str, load: Load) -> None:
    """All records into one partition, in batches of some dozens. Raises TimeoutError."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "batch.num.messages": 50})
    for number in range(load.records):
        key = SLOW_KEY if number % load.slow_every == 0 else f"k{number % load.keys}"
        producer.produce(topic, str(number), key=key)
    if producer.flush(60):
        raise TimeoutError("the records could not be produced")


def read(bootstrap: str, load: Load, name: str, members: int, order: str, max_poll_records: int) -> Outcome:
    """Have a new group of so many members, who are all there before the records are, read everything once."""
    topic = group = f"{order}-{members}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    set_group(bootstrap, group, share_auto_offset_reset="earliest", share_delivery_order=order)
    prepare_coordinator(bootstrap, group, topic_id(bootstrap, topic))
    with ShareWorkers(
        bootstrap,
        group,
        topic,
        members=members,
        slow_key=SLOW_KEY,
        slow_ms=load.slow_ms,
        fast_ms=load.fast_ms,
        max_poll_records=max_poll_records,
        records=load.records,
    ) as workers:
        workers.until_ready()
        produce(bootstrap, topic, load)
        handled = workers.finish(600)
    return Outcome(name, _seconds(handled), len(disorder(handled)), len(handled))


def _seconds(handled: list[Handled]) -> float:
    return (max(one.ended_ns for one in handled) - min(one.began_ns for one in handled)) / NS


def main() -> None:
    # A member acknowledges what it was given when it asks for more: what it has besides the slow record holds up that
    # one's successor. So members ask for few records at a time.
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=1_600)
    parser.add_argument("--slow-every", type=int, default=40, help="every so many records have the slow key")
    parser.add_argument("--slow-ms", type=int, default=50)
    parser.add_argument("--fast-ms", type=int, default=5)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--poll", type=int, default=4, help="max.poll.records of the members")
    arguments = parser.parse_args()
    load = Load(arguments.records, arguments.slow_every, arguments.slow_ms, arguments.fast_ms, arguments.keys)
    members = arguments.members
    print(f"{load.records} records, {load.work_s:.1f} s of work; {load.slow_key_s:.1f} s of it for the slow key")
    with OttlaProcess() as broker:
        outcomes = [
            read(broker.bootstrap, load, "one member", 1, "any", 50),
            read(broker.bootstrap, load, f"{members} members, key order", members, "key", arguments.poll),
            read(broker.bootstrap, load, f"{members} members, any order", members, "any", arguments.poll),
        ]
    for outcome in outcomes:
        print(
            f"{outcome.name:>22}: {outcome.seconds:6.2f} s, {outcomes[0].seconds / outcome.seconds:4.2f} x as fast; "
            f"{outcome.deliveries} deliveries, {outcome.complaints} out of order"
        )


if __name__ == "__main__":
    main()
