"""Writers of source tasks that are fenced while they write: `python -m tests.support.fenced_writers BROKERS`.

Ends with 0, unless the end of such a writer takes the process down.
"""

import contextlib
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import KafkaException

from ottla.connect.herder.state import TaskId
from ottla.connect.runtime.chain import Encoded
from ottla.connect.runtime.source_task import TransactionalWriter

_ROUNDS: Final = 20
_CONNECTORS: Final = 4
_RECORDS_AT_ONCE: Final = 50
_TIMEOUT_S: Final = 10.0


def main(bootstrap: str) -> None:
    """Run all connectors at the same time."""
    threads = [threading.Thread(target=_fence_often, args=(bootstrap, f"c{n}")) for n in range(_CONNECTORS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _fence_often(bootstrap: str, connector: str) -> None:
    for _ in range(_ROUNDS):
        former, latter = writer(bootstrap, connector), writer(bootstrap, connector)
        former.open()
        former.send(Encoded(connector, b"", b"before", [], None, None))
        fencing = threading.Thread(target=latter.open)
        fencing.start()
        deadline = time.monotonic() + _TIMEOUT_S
        with contextlib.suppress(KafkaException):  # it is fenced
            while time.monotonic() < deadline:
                for _ in range(_RECORDS_AT_ONCE):
                    former.send(Encoded(connector, b"", b"meanwhile", [], None, None))
                former.client.poll(0)
        former.close()
        fencing.join()
        latter.close()


def writer(bootstrap: str, connector: str) -> TransactionalWriter:
    """A writer for the only task of a connector; it sends many small requests."""
    # no lines about what is wanted here
    client = {"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.size": 200, "log_level": 0}
    environment: Any = SimpleNamespace(settings=SimpleNamespace(group_id="workers"))
    return TransactionalWriter(TaskId(connector, 0), client, environment)


if __name__ == "__main__":
    main(sys.argv[1])
