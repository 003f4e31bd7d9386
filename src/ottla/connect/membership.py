"""Which workers there are, and which of them leads: an ordinary consumer group (ADR 13).

All workers subscribe to the topic of configurations, which has one partition: who is assigned it leads. The client
id of a
member is its worker's id, `host:port` of its REST API.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

log = logging.getLogger(__name__)

_ANSWER_S: Final = 10.0
_ASK_EVERY_S: Final = 1.0
_WORKER: Final = re.compile(r".+:\d+")
"""Ids of workers; other members are consumers that happen to have the same group."""
_OF_ITS_OWN: Final = "give each an address of its own with rest.advertised.host.name and rest.advertised.port"


class Membership(Protocol):
    """A worker's place among the workers."""

    @property
    def leading(self) -> bool:
        """Whether this worker leads."""

    @property
    def settled(self) -> bool:
        """Whether it is in the group and no rebalance is under way."""

    def members(self) -> list[str] | None:
        """All workers, for the leader; None: not known now."""

    def connect(self) -> None:
        """Begin to look for the others, so that joining is quick."""

    def start(self) -> None:
        """Join."""

    def stop(self) -> None:
        """Leave."""


class Alone:
    """The only worker."""

    leading = settled = True

    def __init__(self, worker: str) -> None:
        self._worker = worker

    def members(self) -> list[str] | None:
        """This one."""
        return [self._worker]

    def connect(self) -> None:
        """There is nobody to look for."""

    def start(self) -> None:
        """There is nobody to join."""

    def stop(self) -> None:
        """There is nobody to leave."""


class Group:
    """One of the workers of a consumer group. changed: called, from another thread, whenever something has changed."""

    def __init__(
        self,
        worker: str,
        group: str,
        topic: str,
        client: Mapping[str, Any],
        timing: Mapping[str, int],
        changed: Callable[[], None],
    ) -> None:
        self._worker, self._group, self._topic, self._changed = worker, group, topic, changed
        self._client = dict(client)
        settings = {
            "group.id": group,
            "client.id": worker,
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": timing["session"],
            "heartbeat.interval.ms": timing["heartbeat"],
            "max.poll.interval.ms": max(timing["rebalance"], timing["session"]),
        }
        self._settings = {**self._client, **settings}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="connect group", daemon=True)
        self._admin = AdminClient(self._client)
        self._consumer: Consumer | None = None
        self._joined = self._leads = False
        self._asked_at = float("-inf")
        self._members: list[str] | None = None

    @property
    def leading(self) -> bool:
        """Whether this worker has the partition."""
        return self._leads

    @property
    def settled(self) -> bool:
        """Whether it has an assignment, be it an empty one."""
        return self._joined

    def connect(self) -> None:
        """Make the client, which looks for the group's coordinator by itself."""
        self._consumer = Consumer(self._settings)

    def start(self) -> None:
        """Join, in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Leave."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def members(self) -> list[str] | None:
        """The members of the group as its coordinator knows them, asked about once a second.

        None too if the coordinator says that another worker leads: this one was away, and has not heard of it yet.
        """
        now = time.monotonic()
        if now - self._asked_at < _ASK_EVERY_S:
            return self._members
        self._asked_at = now
        try:
            asked = self._admin.describe_consumer_groups([self._group], request_timeout=_ANSWER_S)
            described = asked[self._group].result(_ANSWER_S)
        except (KafkaException, TimeoutError) as failure:
            log.warning("the workers' group cannot be described: %s", failure)
            return self._members
        workers = [each for each in described.members if _WORKER.fullmatch(each.client_id)]
        members = sorted({each.client_id for each in workers})
        if len(members) < len(workers):  # each would run the tasks of both, and fence the other's
            names = [each.client_id for each in workers]
            twice = next(name for name in members if names.count(name) > 1)
            log.error("two workers call themselves %s, so that none is given tasks; %s", twice, _OF_ITS_OWN)
        holders = {each.client_id for each in workers if each.assignment.topic_partitions}
        self._members = members if holders == {self._worker} and len(members) == len(workers) else None
        return self._members

    def _follow(self) -> None:
        consumer = self._consumer
        assert consumer is not None
        try:
            consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)
            while not self._stopping.is_set():
                message = consumer.poll(0.2)
                error = None if message is None else message.error()
                if error is not None:
                    log.warning("the workers' group: %s", error.str())
        except Exception:
            log.exception("this worker can no longer be a member of its group")
        finally:
            self._joined = self._leads = False
            consumer.close()
            self._changed()

    def _assigned(self, consumer: Consumer, partitions: list[Any]) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)  # it is about having it, not about reading it
        self._joined, self._leads, self._asked_at = True, bool(partitions), float("-inf")
        log.info("in group %s as %s%s", self._group, self._worker, ", leading" if self._leads else "")
        self._changed()

    def _gone(self, _consumer: Consumer, _partitions: list[Any]) -> None:
        self._joined = self._leads = False
        self._changed()
