"""Settings of share groups, and their coordinator made ready, over a socket: no client library has the calls."""

import base64
from uuid import UUID

from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.eventually import eventually
from tests.support.raw_client import ask

GROUP_RESOURCE = 32
SHARE_COORDINATOR = 2


def set_group(bootstrap: str, group: str, **settings: str) -> None:
    """Settings of a group by name, dots as underscores."""
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=group,
        configs=[
            AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in settings.items()
        ],
    )
    (result,) = ask(bootstrap, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1).responses
    assert result.error_code == 0, result


def topic_id(bootstrap: str, topic: str) -> UUID:
    """The id under which share groups know a topic."""
    described = ask(bootstrap, DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)]), 0)
    found = described.topics[0].topic_id
    assert isinstance(found, UUID)
    return found


def prepare_coordinator(bootstrap: str, group: str, topic: UUID) -> None:
    """Have the topic of the share coordinator made, which the first to ask for it would wait for.

    Kafka offers share groups once `share.version` is set; Ottla always does.
    """
    on = FeatureUpdateKey(feature="share.version", max_version_level=1)
    assert ask(bootstrap, UpdateFeaturesRequest(feature_updates=[on]), 1).error_code == 0
    await_coordinator(bootstrap, group, topic)


def await_coordinator(bootstrap: str, group: str, topic: UUID) -> None:
    """The same with any broker of a cluster, where the feature is on."""
    key = f"{group}:{base64.urlsafe_b64encode(topic.bytes).rstrip(b'=').decode()}:0"
    request = FindCoordinatorRequest(key_type=SHARE_COORDINATOR, coordinator_keys=[key])
    eventually(lambda: ask(bootstrap, request, 6).coordinators[0].error_code == 0)
