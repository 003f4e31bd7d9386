"""The compiled codec is worth having, and importing declarations is cheap. Bounds are loose: a slow machine passes."""

from __future__ import annotations

import subprocess
import sys
from time import thread_time
from timeit import repeat
from types import ModuleType

from ottla.protocol import codec, compiled
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

RECORDS = memoryview(bytes(16_384))
REQUEST = ProduceRequest(
    acks=-1,
    timeout_ms=30_000,
    topic_data=[
        TopicProduceData(
            name="orders", partition_data=[PartitionProduceData(index=index, records=RECORDS) for index in range(6)]
        )
    ],
)
ENCODED = b"".join(compiled.encode(REQUEST, 12))  # type: ignore[arg-type]  # no opaque pieces


def seconds(module: ModuleType) -> tuple[float, float]:
    """Best CPU time of 200 encodings and of 200 decodings: other processes of a busy machine do not count."""
    return (
        min(repeat(lambda: module.encode(REQUEST, 12), timer=thread_time, number=200, repeat=5)),
        min(repeat(lambda: module.decode(ProduceRequest, ENCODED, 12), timer=thread_time, number=200, repeat=5)),
    )


def test_compiled_is_several_times_faster() -> None:
    slow, fast = seconds(codec), seconds(compiled)
    assert fast[0] * 3 < slow[0]
    assert fast[1] * 3 < slow[1]


def test_nothing_is_imported_or_generated_before_it_is_needed() -> None:
    program = (
        "import sys, ottla.protocol.framing, ottla.protocol.compiled as compiled\n"
        "from ottla.protocol.api import request_class\n"
        "loaded = lambda: sorted(name for name in sys.modules if name.startswith('ottla.protocol.messages.'))\n"
        "assert loaded() == [], loaded()\n"
        "request_class(0)\n"
        "assert loaded() == ['ottla.protocol.messages.produce'], loaded()\n"
        "assert not compiled._encoders and not compiled._decoders\n"
        "heavy = {'asyncio', 'socket', 'threading', 'random', 'dataclasses', 'inspect'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-S", "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
