"""The topics of the metadata image, as groups want to see them."""

from collections.abc import Mapping

from ottla.cluster.image import MetadataImage, TopicImage
from ottla.groups.topics import Topic
from ottla.ids import TopicId, TopicName


class ImageTopics:
    """A `TopicsView` of one image; topics are looked up on demand."""

    __slots__ = ("_found", "_image", "_racks", "version")

    def __init__(self, image: MetadataImage, version: int) -> None:
        self.version = version
        self._image = image
        self._racks: Mapping[int, str | None] = {broker.broker_id: broker.rack for broker in image.brokers.values()}
        self._found: dict[TopicName, Topic] = {}

    def by_name(self, name: TopicName) -> Topic | None:
        """A topic of the image; None if there is none of this name."""
        found = self._found.get(name)
        if found is None and (topic := self._image.topics.get(name)) is not None:
            found = self._found[name] = self._look_at(topic)
        return found

    def by_id(self, topic_id: TopicId) -> Topic | None:
        """A topic of the image; None if there is none with this id."""
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else self.by_name(topic.name)

    def names(self) -> tuple[TopicName, ...]:
        """The names of all topics, internal ones too: in Kafka a regular expression matches them like any other."""
        return tuple(self._image.topics)

    def after(self, image: MetadataImage) -> "ImageTopics":
        """The view of the next image; its version is another one if topics have come or gone."""
        came_or_went = image.topics_by_id.keys() != self._image.topics_by_id.keys()
        return ImageTopics(image, self.version + came_or_went)

    def changes(self, after: "ImageTopics") -> frozenset[TopicName]:
        """Names of topics that are new, gone, made anew, grown, or whose replicas are in other racks."""
        before, now = self._image.topics, after._image.topics
        same_racks = self._racks == after._racks
        if before is now and same_racks:
            return frozenset()
        # Topics in which nothing has changed are the same objects, however many there are.
        touched = {name for name, topic in now.items() if not same_racks or before.get(name) is not topic}
        touched |= before.keys() - now.keys()
        return frozenset(name for name in touched if self.by_name(name) != after.by_name(name))

    def _look_at(self, topic: TopicImage) -> Topic:
        return Topic(
            topic.name,
            topic.topic_id,
            tuple(
                tuple(rack for replica in partition.replicas if (rack := self._racks.get(replica)) is not None)
                for partition in topic.partitions
            ),
        )
