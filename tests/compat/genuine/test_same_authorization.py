"""The routing table requires what genuine Kafka requires: operations and resources are read from its compiled handlers.

What a handler of Kafka looks up shows in its bytecode, and in that of the methods and lambdas it calls. Conditions do
not show, so that sets are compared.
"""

import re
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from tests.support.genuine import KAFKA_VERSION, kafka_libs
from tests.support.requirements import require

from ottla.protocol.api import ApiKey
from ottla.security.authorization import Operation, ResourceType
from ottla.server.routing import ROUTES

CLASSES: Final = (
    "kafka.server.KafkaApis",
    "kafka.server.ControllerApis",
    "kafka.server.AclApis",
    "kafka.server.ConfigHelper",
    "kafka.server.handlers.DescribeTopicPartitionsRequestHandler",
)
METHOD: Final = re.compile(r"  \w.* (?P<name>[\w$]+)\(.*\).*;$")
LOOKED_UP: Final = re.compile(r"// Field org/apache/kafka/common/(?:acl/AclOperation|resource/ResourceType)\.(\w+):")
API: Final = re.compile(r"// Field org/apache/kafka/common/protocol/ApiKeys\.(\w+):")
CALLED: Final = re.compile(r"// (?:Interface)?Method (?:(?P<owner>[\w/$]+)\.)?(?P<name>[\w$]+):")
CLUSTER_OPERATION: Final = "authorizeClusterOperation"
FORWARDED_BY_ITS_HANDLER: Final = {"ALTER_CONFIGS", "INCREMENTAL_ALTER_CONFIGS"}
"""Handled in part by the broker that it is sent to, then by the controller."""
BESIDES: Final = {
    ApiKey.INIT_PRODUCER_ID: {"TWO_PHASE_COMMIT"},  # v6, which Kafka does not advertise yet
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"CLUSTER_ACTION"},  # the loggers of a controller of KRaft
}
"""What Kafka looks up for requests that are not served here."""


def decompiled(class_name: str, class_path: str) -> str:
    """The bytecode of a class, as the JDK's `javap` prints it."""
    javap = Path(require("javac")).with_name("javap")
    command = [str(javap), "-c", "-p", "-classpath", class_path, class_name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@cache
def looked_up() -> dict[str, set[str]]:
    """By API: operations and types of resources that its handler looks up, the controller's if it forwards."""
    names: dict[str, set[str]] = defaultdict(set)
    calls: dict[str, set[str]] = defaultdict(set)
    handlers: dict[str, dict[str, str]] = defaultdict(dict)
    libs = kafka_libs()
    class_path = ":".join(str(libs / f"{name}-{KAFKA_VERSION}.jar") for name in ("kafka_2.13", "kafka-server"))
    for class_name in CLASSES:
        printed = decompiled(class_name, class_path)
        method, api = "", ""
        for line in printed.splitlines():
            if found := METHOD.match(line):
                method = f"{class_name}.{found['name']}"
                of = re.match(r"(?:\$anonfun\$|lambda\$)(\w+)\$\d+", found["name"])
                if of:
                    calls[f"{class_name}.{of[1]}"].add(method)
            elif found := LOOKED_UP.search(line):
                names[method].add(found[1])
            elif method.endswith(".handle") and (found := API.search(line)):
                api = found[1]
            elif found := CALLED.search(line):
                owner = (found["owner"] or class_name).replace("/", ".")
                calls[method].add(f"{owner}.{found['name']}")
                if found["name"] == CLUSTER_OPERATION:
                    names[method].add("CLUSTER")
                if method.endswith(".handle") and re.match(r"handle[A-Z]|forward", found["name"]):
                    handlers[class_name].setdefault(api, f"{owner}.{found['name']}")
    kafka, controller = (handlers[name] for name in CLASSES[:2])
    found_by_api = {}
    for api, handler in kafka.items():
        forwarded = "forward" in handler or api in FORWARDED_BY_ITS_HANDLER
        handled_by = [handler, controller[api]] if forwarded and api in controller else [handler]
        found_by_api[api] = set().union(*(_reached(method, names, calls) for method in handled_by))
    return found_by_api


def _reached(method: str, names: dict[str, set[str]], calls: dict[str, set[str]]) -> set[str]:
    seen, waiting = {method}, [method]
    while waiting:
        for called in calls[waiting.pop()] - seen:
            seen.add(called)
            waiting.append(called)
    return set().union(*(names[each] for each in seen))


@pytest.mark.parametrize("key", sorted(ROUTES), ids=lambda key: key.name)
def test_a_route_names_what_kafka_looks_up(key: ApiKey) -> None:
    declared = {part.name for each in ROUTES[key].authorization for permission in each.any_of for part in permission}
    assert declared == looked_up()[key.name] - BESIDES.get(key, set())
    assert looked_up()[key.name] >= BESIDES.get(key, set())


def test_the_codes_are_those_of_kafka() -> None:
    clients = kafka_libs() / f"kafka-clients-{KAFKA_VERSION}.jar"
    for kafka, ours in (("acl.AclOperation", Operation), ("resource.ResourceType", ResourceType)):
        printed = decompiled(f"org.apache.kafka.common.{kafka}", str(clients))
        made = re.findall(r"// String (\w+)\n.*\n +\d+: (?:iconst_|bipush +)(\d+)\n", printed)
        assert {name: int(code) for name, code in made} == {each.name: each.value for each in ours}
