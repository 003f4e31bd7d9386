"""Ottla's own `share.delivery.order=key`, with the plain Java share consumer (KIP-932 has no order at all).

A checker looks at what eight members did, and when: no key was ever in hand twice, and none overtook itself. The same
checker finds fault with `share.delivery.order=any`, so it can.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.share_groups import prepare_coordinator, set_group, topic_id
from tests.support.share_workers import Handled, ShareWorkers, disorder

MEMBERS = 8
RECORDS = 160
KEYS = 10
SLOW_MS = 10
SLOW_EVERY = 8


@pytest.fixture(scope="module")
def broker() -> Iterator[OttlaProcess]:
    few = {"offsets.topic.num.partitions": "3", "share.coordinator.state.topic.num.partitions": "3"}
    with OttlaProcess(properties=few) as process:
        yield process
        assert "Traceback" not in process.log_text()


def records(broker: OttlaProcess, topic: str, order: str) -> str:
    """One partition with a slow key and many quick ones; returns a group that reads it in this order."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5_000})
    for number in range(RECORDS):
        key = "slow" if number % SLOW_EVERY == 0 else f"k{number % KEYS}"
        producer.produce(topic, str(number), key=key)
    assert producer.flush(20) == 0
    group = f"by-{order}-{topic}"
    set_group(broker.bootstrap, group, share_auto_offset_reset="earliest", share_delivery_order=order)
    prepare_coordinator(broker.bootstrap, group, topic_id(broker.bootstrap, topic))
    return group


def work(broker: OttlaProcess, topic: str, group: str, **settings: object) -> list[Handled]:
    common = {"members": MEMBERS, "slow_key": "slow", "slow_ms": SLOW_MS, "fast_ms": 2, "records": RECORDS}
    with ShareWorkers(broker.bootstrap, group, topic, **{**common, **settings}) as workers:
        handled = workers.finish()
    assert not workers.refused()
    return handled


@pytest.mark.parametrize("max_poll_records", [1, 50])
def test_no_key_is_in_hand_twice_and_others_go_on(broker: OttlaProcess, max_poll_records: int) -> None:
    topic = f"calm-{max_poll_records}"
    group = records(broker, topic, "key")
    handled = work(broker, topic, group, max_poll_records=max_poll_records)
    assert disorder(handled) == []
    assert Counter(one.offset for one in handled) == Counter(range(RECORDS))
    slow = [one for one in handled if one.key == "slow"]
    others_meanwhile = [
        one for one in handled if one.key != "slow" and slow[0].began_ns < one.ended_ns < slow[-1].ended_ns
    ]
    assert len(others_meanwhile) > RECORDS // 4, "the slow key holds nobody else up"


def test_a_key_keeps_its_order_when_records_are_released(broker: OttlaProcess) -> None:
    group = records(broker, "released", "key")
    handled = work(broker, "released", group, max_poll_records=5, outcome="release", slow_ms=2)
    assert disorder(handled) == []
    assert Counter(one.offset for one in handled) == Counter([*range(RECORDS), *range(RECORDS)])


def test_the_checker_finds_what_happens_without(broker: OttlaProcess) -> None:
    """Eight members that get a batch each have the slow key in hand several times."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("any", 1, 1)])["any"].result(10)
    for _ in range(MEMBERS):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5_000})
        for number in range(10):
            producer.produce("any", str(number), key="slow")
        assert producer.flush(10) == 0
    group = "any-order"
    set_group(broker.bootstrap, group, share_auto_offset_reset="earliest", share_delivery_order="any")
    prepare_coordinator(broker.bootstrap, group, topic_id(broker.bootstrap, "any"))
    with ShareWorkers(
        broker.bootstrap, group, "any", members=2, slow_key="slow", slow_ms=300, max_poll_records=10, records=40
    ) as workers:
        eventually(lambda: len(disorder(workers.handled)) > 0, timeout_s=50)


def test_keys_keep_their_order_when_the_broker_is_killed(broker: OttlaProcess) -> None:
    """What was in hand is delivered again; still no key overtakes itself, and nothing is lost."""
    group = records(broker, "killed", "key")
    with ShareWorkers(
        broker.bootstrap, group, "killed", members=4, max_poll_records=1, fast_ms=3, slow_ms=3, records=10**9
    ) as workers:
        eventually(lambda: len(workers.confirmed()) > RECORDS // 4, timeout_s=60)
        broker.restart(kill=True)
        eventually(lambda: len(workers.confirmed()) >= RECORDS - MEMBERS, timeout_s=60)
        eventually(lambda: {one.offset for one in workers.handled} == set(range(RECORDS)), timeout_s=20)
        finished_in_order(workers.handled)


def finished_in_order(handled: list[Handled]) -> None:
    """A member that has not yet heard that its broker is gone may still be at work, so records may be in hand twice;
    but nobody begins with one for the first time before those before it were done."""
    first_begun: dict[int, int] = {}
    first_done: dict[int, int] = {}
    keys: dict[str, list[int]] = {}
    for one in handled:
        first_begun[one.offset] = min(one.began_ns, first_begun.get(one.offset, one.began_ns))
        first_done[one.offset] = min(one.ended_ns, first_done.get(one.offset, one.ended_ns))
        if one.offset not in keys.setdefault(one.key, []):
            keys[one.key].append(one.offset)
    for offsets in keys.values():
        ordered = sorted(offsets)
        assert all(first_done[a] <= first_begun[b] for a, b in pairwise(ordered))
