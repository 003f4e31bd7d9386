"""Topics that are created while brokers are killed."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic


def is_created(admin: AdminClient, topic: str, *, replicas: int) -> bool:
    """Create a topic of one partition, unless it is there; False where the broker that was asked has gone meanwhile."""
    try:
        admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result(60)
    except KafkaException as problem:
        return bool(problem.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True
