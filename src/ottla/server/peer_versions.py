"""Which version of a request another broker is asked in, while brokers of several releases are in one cluster.

A broker hangs up on a version that it does not know, as one does that dies: the older version is tried then, and the
newer one again after that.
"""

from ottla.cluster.image import MetadataImage
from ottla.ids import BrokerId


class PeerVersions:
    """Two versions of one request. On the loop's thread."""

    def __init__(self, newest: int, older: int) -> None:
        """`older` is also what Kafka's own brokers are asked in."""
        self._newest = newest
        self._older = older
        self._asked_older: dict[BrokerId, int] = {}
        """Brokers that did not answer the newest version, with their epochs: a broker that restarts may be newer."""

    def of(self, image: MetadataImage, broker_id: BrokerId) -> int:
        """The version to ask this broker in."""
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.confirms_leadership or self._asked_older.get(broker_id) == broker.epoch:
            return self._older
        return self._newest

    def unanswered(self, image: MetadataImage, broker_id: BrokerId, version: int) -> None:
        """The broker did not answer a request in this version."""
        broker = image.brokers.get(broker_id)
        if version == self._newest and broker is not None:
            self._asked_older[broker_id] = broker.epoch
        else:
            self._asked_older.pop(broker_id, None)
