"""Which cluster and topics there are now, by their ids: looked up for all tasks of a worker."""

import threading
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.errors import Retriable, of_brokers
from ottla.connect.log_identity import LogIdentity

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_ANSWER_S: Final = 10.0
_FRESH_S: Final = 5.0
"""How long an answer is shared by the tasks of a worker."""


class Identities:
    """Looks up identities, with one client for all tasks whose clients have the same settings. Any thread may call.

    Brokers that do not answer delay the tasks that use the same client, and no others.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lookups: dict[str, _Lookup] = {}

    def of(self, topics: Collection[str], client: Mapping[str, Any], *, shared: bool = False) -> dict[str, LogIdentity]:
        """The identities of topics, of those that are there. Raises Retriable.

        shared: an answer of the last seconds will do; where an offset is about to be used it does not.
        """
        which = repr(sorted((name, str(value)) for name, value in client.items()))
        with self._lock:
            lookup = self._lookups.setdefault(which, _Lookup(client))
        return lookup.of(topics, shared)


class _Lookup:
    """One client, and what its brokers answered last. Its lock is held while they are asked."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._lock = threading.Lock()
        self._settings = dict(client)
        self._admin: AdminClient | None = None
        self._known: dict[str, tuple[float, LogIdentity]] = {}
        self._failed: tuple[float, Retriable] | None = None
        """When there was no answer, and why: tasks that waited meanwhile do not ask again one after the other."""

    def of(self, topics: Collection[str], shared: bool) -> dict[str, LogIdentity]:
        with self._lock:
            since = time.monotonic() - _FRESH_S if shared else float("inf")
            stale = [each for each in topics if each not in self._known or self._known[each][0] < since]
            if stale:
                if shared and self._failed is not None and self._failed[0] >= since:
                    raise Retriable(str(self._failed[1]))
                try:
                    self._ask(stale)
                except Retriable as failure:
                    self._failed = time.monotonic(), failure
                    raise
                self._failed = None
            return {topic: self._known[topic][1] for topic in topics if topic in self._known}

    def _ask(self, topics: list[str]) -> None:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(self._settings)
        found = _described(self._admin, topics)
        now = time.monotonic()
        for topic in topics:
            self._known.pop(topic, None)
            if topic in found:
                self._known[topic] = now, found[topic]


def _described(admin: "AdminClient", topics: list[str]) -> dict[str, LogIdentity]:
    from confluent_kafka import KafkaException

    try:
        asked = admin.describe_cluster(request_timeout=_ANSWER_S)
        ids = topic_ids(admin, topics)
        cluster = asked.result(_ANSWER_S).cluster_id
    except KafkaException as failure:
        raise Retriable(f"the id of the cluster cannot be read: {failure.args[0].str()}") from None
    except TimeoutError:
        raise Retriable(f"the id of the cluster cannot be read: no answer within {_ANSWER_S:.0f} s") from None
    return {topic: LogIdentity(cluster or None, topic_id) for topic, topic_id in ids.items()}


def topic_ids(admin: "AdminClient", topics: list[str]) -> dict[str, str | None]:
    """Ids of topics, of those that are there; None: the brokers have none. Raises ConnectError, Retriable."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid

    if not topics:
        return {}
    none = str(Uuid(0, 0))
    found: dict[str, str | None] = {}
    for topic, answer in admin.describe_topics(TopicCollection(topics), request_timeout=_ANSWER_S).items():
        doing = f"asking for the id of topic {topic}"
        try:
            topic_id = str(answer.result(_ANSWER_S).topic_id)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:  # deleted since it was listed
                continue
            raise of_brokers(error, f"{doing} failed: {error.str()}") from failure
        except TimeoutError as failure:
            raise Retriable(f"{doing} failed: no answer within {_ANSWER_S:.0f} s") from failure
        found[topic] = None if topic_id in (none, "None") else topic_id
    return found
