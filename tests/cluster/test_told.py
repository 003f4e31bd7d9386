"""What brokers know of what they were told, and did not ask for."""

from ottla.cluster.cluster_metadata import ClusterMetadata
from ottla.ids import TopicName
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually


def test_a_broker_knows_the_settings_of_topics_that_it_does_not_hold() -> None:
    with ClusterInProcess() as cluster:
        cluster.create("t", [[1, 2]], min_insync_replicas="1")
        topics = [broker.metadata.log_config for broker in cluster.brokers.values()]
        eventually(lambda: all(config(TopicName("t")).min_insync_replicas == 1 for config in topics))


def test_a_broker_that_finds_itself_registered_goes_on() -> None:
    """The answer to a transaction may be lost, and the transaction not."""
    with ClusterInProcess(1) as cluster:
        metadata = cluster.brokers[1].metadata
        assert isinstance(metadata, ClusterMetadata)
        epoch, metadata.broker_epoch = metadata.broker_epoch, -1
        cluster.run(metadata.register_again())
        assert metadata.broker_epoch == epoch
