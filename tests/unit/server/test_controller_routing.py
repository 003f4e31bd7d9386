"""What a controller serves is what a genuine one of Kafka 4.3.1 serves."""

from typing import Final

from ottla.protocol.api import ApiKey
from ottla.server.controller_handlers.api_versions import supported
from ottla.server.controller_routing import CONTROLLER_ROUTES, FORWARDABLE, controllers_guards

GENUINE: Final = """
1 4 18    17 0 1    18 0 4    19 2 7    20 1 6    29 1 3    30 1 3    31 1 3    32 1 4    33 0 2    36 0 2    37 0 3
38 1 3    39 1 2    40 1 2    41 1 3    43 0 2    44 0 1    45 0 1    46 0 0    49 0 1    50 0 0    51 0 0    52 0 2
53 0 1    54 0 1    55 0 2    56 2 3    57 0 2    58 0 0    59 0 1    60 0 2    62 0 4    63 0 2    64 0 0    67 0 0
70 0 0    73 0 0    80 0 1    81 0 0    82 0 0
"""
"""API key, lowest and highest version: `ApiKeys.apisForListener(CONTROLLER)` of Kafka 4.3.1."""
FORWARDED: Final = {19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 67, 80, 81}


def test_served_is_what_kafka_serves() -> None:
    numbers = list(map(int, GENUINE.split()))
    genuine = list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))
    assert [(each.api_key, each.min_version, each.max_version) for each in supported(0).api_keys] == genuine  # type: ignore[arg-type]  # NONE


def test_forwardable_is_what_kafka_forwards() -> None:
    assert FORWARDABLE == FORWARDED
    assert CONTROLLER_ROUTES.keys() >= FORWARDABLE
    assert ApiKey.ENVELOPE not in FORWARDABLE


def test_every_api_has_a_guard() -> None:
    assert controllers_guards().keys() == CONTROLLER_ROUTES.keys()
