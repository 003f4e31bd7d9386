"""The cluster's metadata as the parts of a broker see it: an image, and the settings that follow from it.

Subclasses make the images: `MetadataService` by its own changes, `ClusterMetadata` from the updates of a controller
with ZooKeeper, `QuorumMetadata` from the log of a quorum of controllers.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from ottla.cluster.commands import CreateTopic
from ottla.cluster.configs import ConfigChange, effective_config
from ottla.cluster.controller import ElectionType, NewTopic
from ottla.cluster.features import FeatureUpdate
from ottla.cluster.image import BrokerImage, MetadataImage, ResourceType, TopicImage, empty_image
from ottla.cluster.internal_topics import new_topic
from ottla.config.broker import BrokerConfig
from ottla.config.group_settings import GroupSettings
from ottla.config.log import LogConfig
from ottla.errors import InvalidConfig, OttlaError
from ottla.ids import BrokerId, ProducerId, TopicName, TopicPartition
from ottla.metadata.policies import Policies
from ottla.metadata.store.base import MetadataStore

log: Final = logging.getLogger(__name__)

KNOWN_WITHIN_S: Final = 5.0
NO_LIMIT: Final = 2**15 - 1
Subscriber = Callable[[MetadataImage, MetadataImage], None]


class MetadataView(ABC):
    """The current image, its subscribers, and requests for changes. On the loop's thread."""

    def __init__(self, config: BrokerConfig, policies: Policies | None = None) -> None:
        self._policies = policies or Policies()
        self._static_config = config
        self._image = empty_image("")
        self._config = config
        self._log_configs: dict[TopicName, LogConfig] = {}
        self._group_settings: dict[str, GroupSettings] = {}
        """The settings of groups that have their own."""
        self._subscribers: list[Subscriber] = []
        self.until_followed: Callable[[], Awaitable[None]] = _nothing_to_wait_for
        """Wait until this broker has the partitions of the image, so that answers about them are true."""

    @property
    def image(self) -> MetadataImage:
        """The metadata as last committed."""
        return self._image

    @property
    def is_known(self) -> bool:
        """Whether the image is that of the cluster. Before, it is empty, and proves nothing."""
        return True

    async def until_known(self, timeout_s: float) -> bool:
        """Wait for that; False if it is not so after all this time."""
        return self.is_known

    @property
    def store(self) -> MetadataStore:
        """Where the metadata is kept. Raises LookupError where that is the log of a quorum."""
        raise LookupError("the metadata is in the log of a quorum")

    @property
    def broker_id(self) -> BrokerId:
        return self._static_config.node_id

    @property
    def config(self) -> BrokerConfig:
        """This broker's settings as they hold now, dynamic ones included."""
        return self._config

    @property
    def static_config(self) -> BrokerConfig:
        """This broker's settings as it was started with them."""
        return self._static_config

    def log_config(self, topic: TopicName) -> LogConfig:
        """Settings of the logs of a topic, defaults included."""
        known = self._log_configs.get(topic)
        if known is None:
            known = self._log_configs[topic] = self._config.log_config(self._image.topic_config(topic))
        return known

    def group_settings(self, group_id: str) -> GroupSettings:
        """What holds for a group now, the broker's defaults included; cheap enough to be asked every time."""
        known = self._group_settings.get(group_id)
        if known is None:
            overrides = self._image.config(ResourceType.GROUP, group_id)
            if not overrides:
                return self._config.group_settings(overrides)
            known = self._group_settings[group_id] = self._config.group_settings(overrides)
        return known

    def subscribe(self, changed: Subscriber) -> Callable[[], None]:
        """Call `changed(old, new)` on the loop after every commit; returns a function that ends the subscription.

        When it is called, `image`, `config`, `log_config` and `group_settings` are those of the new image already.
        """
        self._subscribers.append(changed)
        return lambda: self._subscribers.remove(changed)

    @abstractmethod
    async def advertise(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Register this broker under other addresses; in a cluster when it next registers, as in Kafka 4.3.

        Raises `StoreUnavailable`, `StoreConflict`.
        """

    @property
    def features_epoch(self) -> int:
        """Grows with every change of a feature level."""
        return self._image.features_epoch

    @property
    def fenced_brokers(self) -> Sequence[BrokerImage]:
        """The brokers that are registered and do not serve; of a cluster with ZooKeeper there are none."""
        return ()

    @property
    def in_sync_candidates(self) -> Collection[BrokerId]:
        """The brokers that may get into sync: those that are alive and, with a quorum, are not about to stop."""
        return self._image.brokers.keys()

    def feature(self, name: str) -> int:
        """The finalized level of a feature such as `transaction.version`; 0 if there is none."""
        return self._image.features.get(name, 0)

    # -- changes -----------------------------------------------------------------------------------------------------

    @abstractmethod
    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreateTopic | OttlaError]:
        """Create topics, all that can be in one commit; answers in the order asked.

        A `CreateTopic` in the answer is what was done, or with `validate_only` would have been.
        """

    @abstractmethod
    async def delete_topics(self, names: Sequence[TopicName]) -> list[TopicImage | OttlaError]:
        """Delete topics, all that can be in one commit; answers what they were, in the order asked."""

    @abstractmethod
    async def create_partitions(
        self,
        growths: Sequence[tuple[TopicName, int, Sequence[Sequence[int]] | None]],
        *,
        validate_only: bool = False,
    ) -> list[OttlaError | None]:
        """Grow topics, each at most once: name, new total, and replicas of the new partitions if placed."""

    @abstractmethod
    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: ElectionType
    ) -> list[OttlaError | None]:
        """Have partitions led by their preferred replica, or by any that is alive; answers in the order asked."""

    @abstractmethod
    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[OttlaError | None]:
        """Change settings of topics, groups and brokers, each at most once; answers in the order asked."""

    @abstractmethod
    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Change feature levels, all or none. Raises `ApiError` INVALID_UPDATE_VERSION, `StoreUnavailable`."""

    @abstractmethod
    async def next_producer_id(self) -> ProducerId:
        """A producer id that was never given out; blocks of a thousand come from the store or a quorum's controller.

        Raises `ApiError` UNKNOWN_SERVER_ERROR when there are none left, `StoreUnavailable`.
        """

    async def ensure_topics(self, names: Sequence[TopicName]) -> dict[TopicName, OttlaError | None]:
        """Create the missing topics among these, with default or, for internal ones, their own settings."""
        missing = [name for name in dict.fromkeys(names) if name not in self._image.topics]
        if not missing:
            return dict.fromkeys(names)
        brokers = self._replicas_at_most()
        created = await self.create_missing([new_topic(name, self._config, brokers) for name in missing])
        # A topic that is there after all was made by someone quicker, which is as good.
        refused = {
            name: answer
            for name, answer in zip(missing, created, strict=True)
            if answer is not None and name not in self._image.topics
        }
        return {name: refused.get(name) for name in names}

    def _replicas_at_most(self) -> int:
        """How many replicas the coordinators' topics can have: of a broker that is alone, one."""
        return len(self._image.brokers)

    async def create_missing(self, topics: Sequence[NewTopic]) -> list[OttlaError | None]:
        """Create topics because they are used, whichever broker is the controller; answers in the order asked."""
        answers = await self.create_topics(topics)
        return [answer if isinstance(answer, OttlaError) else None for answer in answers]

    async def until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is true of the image; False if it is not after all this time."""
        if is_so():
            return True
        changed = asyncio.Event()
        unsubscribe = self.subscribe(lambda old, new: changed.set())
        try:
            async with asyncio.timeout(timeout_s):
                while not is_so():
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            return False
        finally:
            unsubscribe()
        return True

    # -- images ------------------------------------------------------------------------------------------------------

    def _show(self, new: MetadataImage) -> None:
        """Make an image the current one, and notify all subscribers."""
        old, self._image = self._image, new
        if new.configs is not old.configs:
            self._group_settings.clear()
            self._resolve_configs(old, new)
        for name in old.topics.keys() - new.topics.keys():
            self._log_configs.pop(name, None)
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(old, new)
            except Exception:  # the change is committed, and the other subscribers have to see it
                log.exception("a part of the broker could not follow a change of the metadata")

    def _resolve_configs(self, old: MetadataImage, new: MetadataImage) -> None:
        changed = {key for key in {*old.configs, *new.configs} if old.configs.get(key) != new.configs.get(key)}
        if any(resource_type is ResourceType.BROKER for resource_type, _ in changed):
            self._config = self._effective_config(new)
            self._log_configs.clear()
        for _, name in changed:
            self._log_configs.pop(TopicName(name), None)

    def _effective_config(self, image: MetadataImage) -> BrokerConfig:
        try:
            return effective_config(image, self._static_config)
        except InvalidConfig as problem:
            # They were fine when they were set, but contradict a properties file that has changed since.
            log.error("settings that were changed at runtime are left aside: %s", problem)
            return self._static_config


async def _nothing_to_wait_for() -> None:
    """In a cluster the controller waits for the brokers that it asks."""
