"""The workers of a cluster and their leader, by an ordinary consumer group (ADR 13).

All workers subscribe to the topic of configurations, which has one partition: its assignee leads. The client id of a
member is its worker's id, `host:port` of its REST API.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ottla.connect.clients.groups import UNTIL_ANSWERED_S, leave
from ottla.connect.runtime.worker_settings import WorkerSettings, client_settings

log = logging.getLogger(__name__)

_ANSWER_S: Final = 10.0
_ASK_EVERY_S: Final = 1.0
_PACE_MS: Final = 100
"""At which the client library tries to reach a coordinator that refuses, and which does not become slower."""
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

    def note_gone(self, gone: frozenset[str], leader: str, workers: Collection[str]) -> None:
        """Ignore workers that are gone, although their group still counts them as members.

        leader, workers: those of the last assignment. If the leader is gone, the first of the remaining ones leads.
        """

    def connect(self) -> None:
        """Begin to look for the others, so that joining is quick."""

    def start(self) -> None:
        """Join."""

    def stop(self) -> None:
        """Leave."""


def membership_of(
    settings: WorkerSettings, raw: Mapping[str, str], worker: str, changed: Callable[[], None]
) -> Membership:
    """A worker's membership. raw: its settings as given, with those of clients; worker, changed: as for `Group`."""
    if settings.standalone:
        return Alone(worker)
    timing = {
        "session": settings.session_timeout_ms,
        "heartbeat": settings.heartbeat_interval_ms,
        "rebalance": settings.rebalance_timeout_ms,
    }
    return Group(worker, settings.group_id, settings.config_storage_topic, client_settings(raw), timing, changed)


class Alone:
    """The only worker."""

    leading = settled = True

    def __init__(self, worker: str) -> None:
        self._worker = worker

    def members(self) -> list[str] | None:
        """This one."""
        return [self._worker]

    def note_gone(self, gone: frozenset[str], leader: str, workers: Collection[str]) -> None:
        """Do nothing: there are no other workers."""

    def connect(self) -> None:
        """Do nothing: there is no group."""

    def start(self) -> None:
        """Do nothing: there is no group."""

    def stop(self) -> None:
        """Do nothing: there is no group."""


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
            "group.instance.id": worker,  # started again after a crash, it has its place at once
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": timing["session"],
            "heartbeat.interval.ms": timing["heartbeat"],
            "max.poll.interval.ms": max(timing["rebalance"], timing["session"]),
        }
        pace = max(_PACE_MS, int(self._client.get("reconnect.backoff.ms", _PACE_MS)))
        self._settings = {**self._client, **settings, "reconnect.backoff.ms": pace}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="connect group", daemon=True)
        self._admin = AdminClient(self._client)
        self._consumer: Consumer | None = None
        self._joined = self._leads = False
        self._asked_at = float("-inf")
        self._members: list[str] | None = None
        self._gone_ones: frozenset[str] = frozenset()
        self._rivals: frozenset[str] = frozenset()
        self._stands_in = False

    @property
    def leading(self) -> bool:
        """Whether this worker has the partition, or stands in for an assignee that is gone."""
        return self._leads or (self._stands_in and self._joined)

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
        """The members of the group as its coordinator knows them, queried about once a second.

        None too if the coordinator names another leader: this worker was away, and has not noticed yet.
        """
        now = time.monotonic()
        if now - self._asked_at < _ASK_EVERY_S:
            return self._members
        self._asked_at = now
        try:
            asked = self._admin.describe_consumer_groups([self._group], request_timeout=UNTIL_ANSWERED_S)
            described = asked[self._group].result(_ANSWER_S)
        except (KafkaException, TimeoutError) as failure:
            why = failure if isinstance(failure, KafkaException) else f"no answer within {_ANSWER_S:.0f} s"
            log.warning("the workers' group cannot be described: %s", why)
            self._admin = AdminClient(self._client)
            return self._members
        workers = [each for each in described.members if _WORKER.fullmatch(each.client_id)]
        members = sorted({each.client_id for each in workers})
        if len(members) < len(workers):  # each would run the tasks of both, and fence the other's
            names = [each.client_id for each in workers]
            twice = next(name for name in members if names.count(name) > 1)
            log.error("two workers call themselves %s, so that none is given tasks; %s", twice, _OF_ITS_OWN)
        holders = {each.client_id for each in workers if each.assignment.topic_partitions} - self._gone_ones
        if not self._leads and holders:
            self._stands_in = False
        self._note_rivals(holders - {self._worker} if self._worker in holders else frozenset())
        is_mine = holders == {self._worker} if self._leads else self._stands_in
        left = [each for each in members if each not in self._gone_ones]
        self._members = left if is_mine and len(members) == len(workers) else None
        return self._members

    def _note_rivals(self, rivals: Collection[str]) -> None:
        """Report, once, workers that lead beside this one: they follow another topic, and neither assigns tasks."""
        found = frozenset(rivals)
        if found and found != self._rivals:
            log.error(
                "%s and %s lead group %s by different topics of configurations, so that none assigns tasks: this one "
                "has config.storage.topic=%s; give the workers of a group the same topic, and others another group.id",
                self._worker,
                ", ".join(sorted(found)),
                self._group,
                self._topic,
            )
        self._rivals = found

    def note_gone(self, gone: frozenset[str], leader: str, workers: Collection[str]) -> None:
        """Count workers that are gone as no members; stand in for a leader that is gone."""
        if gone != self._gone_ones:
            self._gone_ones, self._asked_at = gone, float("-inf")
        left = sorted(each for each in workers if each not in gone)
        if leader in gone and not self._leads and not self._stands_in and left[:1] == [self._worker]:
            log.warning("%s led group %s and is gone: %s stands in for it", leader, self._group, self._worker)
            self._stands_in, self._asked_at = True, float("-inf")

    def _follow(self) -> None:
        consumer = self._consumer
        assert consumer is not None
        try:
            consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)
            while not self._stopping.is_set():
                message = consumer.poll(0.2)
                error = None if message is None else message.error()
                if error is not None and error.code() == KafkaError._FATAL:  # the library's name
                    log.error(
                        "another worker calls itself %s, and this one ends its tasks; %s", self._worker, _OF_ITS_OWN
                    )
                    break
                if error is not None:
                    log.warning("the workers' group: %s", error.str())
        except Exception:
            log.exception("this worker can no longer be a member of its group")
        finally:
            self._joined = self._leads = False
            leave(consumer)
            self._changed()

    def _assigned(self, consumer: Consumer, partitions: list[Any]) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)  # it is about having it, not about reading it
        self._joined, self._leads, self._asked_at = True, bool(partitions), float("-inf")
        self._stands_in = False
        log.info("in group %s as %s%s", self._group, self._worker, ", leading" if self._leads else "")
        self._changed()

    def _gone(self, _consumer: Consumer, _partitions: list[Any]) -> None:
        self._joined = self._leads = False
        self._changed()
