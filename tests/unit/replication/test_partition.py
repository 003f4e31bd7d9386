"""The partition a broker leads: what it says when its log cannot be written."""

import logging
from unittest.mock import Mock

import pytest

from ottla.errors import KafkaStorageError
from ottla.ids import TopicPartition
from ottla.replication.partition import Partition


def test_a_full_disk_is_told_once_and_that_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    full = KafkaStorageError("cannot append to t-0 in /data: [Errno 28] No space left on device")
    log = Mock()
    log.append_as_leader.side_effect = [full, full, Mock(size_bytes=1), Mock(size_bytes=1), full]
    partition = Partition(TopicPartition("t", 0), log, Mock(), Mock(), Mock())
    with caplog.at_level(logging.INFO):
        for refused in (True, True, False, False, True):
            if refused:
                with pytest.raises(KafkaStorageError):
                    partition.append(b"")
            else:
                partition.append(b"")
    trouble = (
        "cannot append to t-0 in /data: No space left on device; its producers are refused until it can be written"
    )
    assert [record.getMessage().removesuffix(" again") for record in caplog.records] == [
        trouble,
        "t-0 can be written",
        trouble,
    ]
