"""Many consumers of librdkafka in one group: seconds until each has its share of the partitions, and keeps it.

`python -m benches.consumers_load settle --bootstrap HOST:PORT --topic T --members 50 --protocol classic|consumer`
prints one line of JSON. The topic has as many partitions for each member.
"""

import argparse
import json
import sys
import time
from typing import Final

from confluent_kafka import Consumer, KafkaException

_LIMIT_S: Final = 180.0
_KEPT_FOR_S: Final = 1.0


def settle(bootstrap: str, topic: str, members: int, protocol: str) -> float:
    """Seconds from the first subscription to the assignment that stays.

    Raises:
        TimeoutError: the group was still moving after three minutes.
        KafkaException: a consumer was told an error.
    """
    consumers = [
        Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"settles-{protocol}",
                "group.protocol": protocol,
                "auto.offset.reset": "latest",
                "enable.auto.commit": False,
            }
        )
        for _ in range(members)
    ]
    partitions = len(consumers[0].list_topics(topic, timeout=30).topics[topic].partitions)
    began = time.perf_counter()
    for consumer in consumers:
        consumer.subscribe([topic])
    settled_at = 0.0
    while not settled_at or time.perf_counter() - settled_at < _KEPT_FOR_S:
        for consumer in consumers:
            message = consumer.poll(0)
            if message is not None and (error := message.error()) is not None:
                raise KafkaException(error)
        if not _all_have_their_share(consumers, partitions):
            settled_at = 0.0
        elif not settled_at:
            settled_at = time.perf_counter()
        if time.perf_counter() - began > _LIMIT_S:
            held = [len(consumer.assignment()) for consumer in consumers]
            raise TimeoutError(f"not settled after {_LIMIT_S:.0f} s: {held}")
        time.sleep(0.002)
    for consumer in consumers:
        consumer.close()
    return settled_at - began


def _all_have_their_share(consumers: list[Consumer], partitions: int) -> bool:
    held = [[place.partition for place in consumer.assignment()] for consumer in consumers]
    share = partitions // len(consumers)
    return all(len(mine) == share for mine in held) and len({one for mine in held for one in mine}) == partitions


def main(arguments: list[str]) -> None:
    """Parse the command line, run, print the result."""
    parser = argparse.ArgumentParser(prog="benches.consumers_load")
    parser.add_argument("what", choices=["settle"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--members", type=int, required=True)
    parser.add_argument("--protocol", choices=["classic", "consumer"], required=True)
    given = parser.parse_args(arguments)
    print(json.dumps({"seconds": settle(given.bootstrap, given.topic, given.members, given.protocol)}))


if __name__ == "__main__":
    main(sys.argv[1:])
