"""No request, whatever its size or content, delays another client by more than 50 ms, nor takes the broker's memory.

Each attack is run beside a bystander (`tests.support.bystander`), and up to three times: what delays others does so
every time, what the machine does it does once. To add an attack, write a function of a broker and list it. With `-s`
every run prints its figures.
"""

import socket
from contextlib import ExitStack
from typing import Final

import pytest
from tests.support.broker_process import BrokerProcess
from tests.support.bystander import Attack, Suffered, bystander
from tests.support.ottla_process import OttlaProcess

MOST_S: Final = 0.05
TRIES: Final = 3
MIB: Final = 1 << 20


def many_connections(broker: BrokerProcess) -> None:
    """Nine hundred clients come at once, say nothing and leave."""
    for _ in range(3):
        with ExitStack() as stack:
            for _ in range(900):
                stack.enter_context(socket.create_connection((broker.host, broker.port), timeout=20))


ATTACKS: Final = [
    Attack("many connections", many_connections, grows_by_bytes=16 * MIB),
]


@pytest.fixture(params=ATTACKS, ids=str, scope="module")
def attack(request: pytest.FixtureRequest) -> Attack:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.timeout(300)
def test_no_client_delays_another(attack: Attack) -> None:
    with OttlaProcess(properties=attack.properties) as broker:
        attack.prepare(broker)
        suffered: list[Suffered] = []
        for _ in range(TRIES):
            with bystander(broker) as seen:
                attack.run(broker)
            suffered.append(seen.suffered)
            print(f"{attack.name}: {seen.suffered}")
            if seen.suffered.worst_s <= MOST_S:
                break
        assert suffered[0].grown_bytes <= attack.grows_by_bytes
        assert min(seen.worst_s for seen in suffered) <= MOST_S
