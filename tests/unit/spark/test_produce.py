"""What a task reports when its producer has become unusable; real producers are in tests/pipeline."""

from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.spark import produce


class FencedProducer:
    """A producer that was fenced after its last poll: `produce` reports only that there was a fatal error."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.messages = 1

    def __len__(self) -> int:
        return self.messages

    def produce(self, *row: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))

    def flush(self) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED))

    def purge(self) -> None:
        self.messages = 0


def test_a_fenced_producer_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "Producer", FencedProducer)
    producer = produce.RecordProducer({})
    with pytest.raises(KafkaException) as refused:
        producer.write(iter([pa.record_batch({"value": pa.array([b"1"])})]), "orders")
    assert refused.value.args[0].code() == KafkaError._FENCED
    assert not len(producer.client)
