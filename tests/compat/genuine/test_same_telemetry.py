"""Clients' metrics (KIP-714): the same subscriptions, the same answers to the same requests in the same order."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compat.genuine.test_same_answers import APPEND, DELETE, SET, SUBTRACT, Pair, comparable, flat
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.java_sources import compiled
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import RawConnection, ask

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import alter_configs as ac
from ottla.protocol.messages import api_versions as av
from ottla.protocol.messages import describe_configs as dc
from ottla.protocol.messages import get_telemetry_subscriptions as gt
from ottla.protocol.messages import incremental_alter_configs as ic
from ottla.protocol.messages import list_config_resources as lc
from ottla.protocol.messages import push_telemetry as pt
from ottla.protocol.primitives import NULL_UUID
from ottla.records.batch import Compression
from ottla.records.compression import compress

CLIENT_METRICS = 16
MAX_BYTES = 20_000


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    settings = {"telemetry.max.bytes": str(MAX_BYTES)}
    classes = compiled(Path(__file__).parents[1] / "java" / "TelemetryTaker.java")
    taker = {"metric.reporters": "TelemetryTaker"}
    with (
        GenuineKafka(properties=settings | taker, classes=classes) as genuine,
        OttlaProcess(properties=settings) as ottla,
    ):
        yield Pair(genuine.bootstrap, ottla.bootstrap)


def edit(pair: Pair, name: str, *changes: tuple[str, int, str | None]) -> None:
    resource = ic.AlterConfigsResource(
        resource_type=CLIENT_METRICS,
        resource_name=name,
        configs=[ic.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes],
    )
    pair.ask(ic.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)


def described(pair: Pair, *names: str, keys: list[str] | None = None) -> None:
    resources = [
        dc.DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=keys)
        for name in names
    ]
    pair.look(dc.DescribeConfigsRequest(resources=resources, include_synonyms=True), 4)


@pytest.fixture(scope="module")
def plain() -> Iterator[Pair]:
    """A pair without a plug-in and without subscriptions."""
    with GenuineKafka() as genuine, OttlaProcess() as ottla:
        yield Pair(genuine.bootstrap, ottla.bootstrap)


def test_without_a_plug_in_the_requests_are_not_offered_but_answered(plain: Pair) -> None:
    request = av.ApiVersionsRequest(client_software_name="story", client_software_version="7.1")
    for bootstrap in plain:
        offered = {key.api_key for key in ask(bootstrap, request, 4).api_keys}
        assert not offered & {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    codes = story(
        plain, lambda teller: [teller.get(), teller.get(), teller.push(b"metrics"), teller.push(b"m", terminating=True)]
    )
    assert codes[2:] == [ErrorCode.NONE, ErrorCode.NONE]


def test_subscriptions(pair: Pair) -> None:
    for changes in (
        [("metrics", SET, "a.,b.")],
        [("metrics", APPEND, "c.")],
        [("metrics", SUBTRACT, "a.")],
        [("metrics", SET, "a.,a.")],
        [("metrics", SET, "a.,,b.")],
        [("metrics", SET, None)],
        [("interval.ms", SET, "99")],
        [("interval.ms", SET, "3600001")],
        [("interval.ms", SET, "abc")],
        [("interval.ms", SET, "")],
        [("interval.ms", APPEND, "1")],
        [("interval.ms", SET, "100")],
        [("match", SET, "client_id=a.*b")],
        [("match", SET, "client_id")],
        [("match", SET, "client_id=a=b")],
        [("match", SET, "client_id=a=")],
        [("match", SET, "client_id=")],
        [("match", SET, "nothing=a")],
        [("match", SET, "client_id=(")],
        [("match", SET, "client_id=x, client_software_name = y")],
        [("nope", SET, "1")],
        [("nope", DELETE, None)],
        [("nope", APPEND, "1")],
        [("metrics", SET, "*"), ("metrics", SET, "*")],
    ):
        edit(pair, "sub", *changes)
    edit(pair, "", ("metrics", SET, "a."))
    edit(pair, "other/name", ("metrics", SET, ""))
    described(pair, "sub", "missing", "", "other/name")
    described(pair, "sub", keys=["match", "nope"])
    for version, kinds in ((0, []), (1, [CLIENT_METRICS]), (1, [])):
        pair.look(lc.ListConfigResourcesRequest(resource_types=kinds), version)
    for configs in ({"interval.ms": "7000"}, {"interval.ms": "7"}, {"nope": "1"}, {}):
        resource = ac.AlterConfigsResource(
            resource_type=CLIENT_METRICS,
            resource_name="sub",
            configs=[ac.AlterableConfig(name=key, value=value) for key, value in configs.items()],
        )
        pair.ask(ac.AlterConfigsRequest(resources=[resource], validate_only=False), 2)
        described(pair, "sub")
    edit(pair, "other/name", ("metrics", DELETE, None))
    pair.look(lc.ListConfigResourcesRequest(resource_types=[]), 0)


class Teller:
    """One client of one broker."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self._connection = RawConnection(bootstrap, client_id=client_id)
        named = av.ApiVersionsRequest(client_software_name="story", client_software_version="7.1")
        self._connection.ask(named, 3)
        self.instance = uuid.uuid4()
        self.subscription = 0

    def get(self, instance: uuid.UUID | None = None) -> list[str]:
        asked = self.instance if instance is None else instance
        answer = self._connection.ask(gt.GetTelemetrySubscriptionsRequest(client_instance_id=asked), 0)
        if not answer.error_code:
            self.subscription = answer.subscription_id
            if instance == NULL_UUID:
                assert answer.client_instance_id.version == 4
        answer.subscription_id = 0
        return flat(comparable(answer))

    def push(self, metrics: bytes = b"", codec: int = 0, *, of: int = 0, terminating: bool = False) -> Any:
        request = pt.PushTelemetryRequest(
            client_instance_id=self.instance,
            subscription_id=self.subscription + of,
            terminating=terminating,
            compression_type=codec,
            metrics=metrics,
        )
        return ErrorCode(self._connection.ask(request, 0).error_code)

    def close(self) -> None:
        self._connection.__exit__()


def story(pair: Pair, tell: Any, client_id: str = "teller") -> list[Any]:
    told = []
    for bootstrap in pair:
        teller = Teller(bootstrap, client_id)
        told.append(tell(teller))
        teller.close()
    genuine, ottla = told
    assert ottla == genuine
    return list(ottla)


def compressed(codec: Compression, size: int) -> bytes:
    return compress(codec, b"m" * size)


def test_pushes(pair: Pair) -> None:
    codes = story(
        pair,
        lambda teller: [
            teller.get(),
            teller.get(),
            teller.push(b"metrics"),
            teller.push(b"too soon"),
            teller.get(),
            teller.push(b"the last one", terminating=True),
            teller.push(b"the end", terminating=True),
            teller.push(b"", terminating=False),
        ],
    )
    assert codes[2:4] == [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert codes[5:] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]


def test_pushes_that_are_refused(pair: Pair) -> None:
    for push in (
        {"metrics": b"x", "of": 1},
        {"metrics": b"x", "codec": 9},
        {"metrics": b"x", "codec": -1},
        {"metrics": b"x" * (MAX_BYTES + 1)},
        {"metrics": b"x" * MAX_BYTES},
        {"metrics": b"no gzip", "codec": 1},
        {"metrics": b"no zstd", "codec": 4},
        *({"metrics": compressed(codec, MAX_BYTES), "codec": int(codec)} for codec in Compression),
        *({"metrics": compressed(codec, MAX_BYTES + 1), "codec": int(codec)} for codec in Compression),
        {"metrics": compressed(Compression.GZIP, 10_000_000), "codec": 1},
    ):
        story(pair, lambda teller, push=push: [teller.get(), teller.push(**push), teller.get(), teller.push(b"m")])


def test_ids(pair: Pair) -> None:
    assert story(pair, lambda teller: teller.get(NULL_UUID))
    story(pair, lambda teller: [teller.push(b"unasked"), teller.get(), teller.push(b"asked")])

    def reserved(teller: Teller) -> list[Any]:
        codes = []
        for number in (0, 1):
            teller.instance = uuid.UUID(int=number)
            codes.append(teller.push(b"m"))
        return codes

    assert story(pair, reserved) == [ErrorCode.INVALID_REQUEST] * 2


def test_what_clients_are_asked_for(pair: Pair) -> None:
    edit(pair, "some", ("metrics", SET, "x.,y."), ("interval.ms", SET, "2000"), ("match", SET, "client_id=asked.*"))
    edit(
        pair,
        "named",
        ("metrics", SET, "z.,y."),
        ("match", SET, "client_software_name=story,client_software_version=7[.]."),
    )
    edit(pair, "strangers", ("metrics", SET, "no."), ("interval.ms", SET, "100"), ("match", SET, "client_id=sked"))
    edit(
        pair,
        "local",
        ("metrics", SET, "l."),
        ("match", SET, "client_source_address=127.0.0.1,client_source_port=[0-9]+"),
    )

    def asked(bootstrap: str, client_id: str) -> list[str]:
        teller = Teller(bootstrap, client_id)
        try:
            return teller.get()
        finally:
            teller.close()

    eventually(lambda: "'l.'" in str(asked(pair.genuine, "probe")))
    for client_id in ("asked", "unasked", "asked again"):
        answers = [asked(bootstrap, client_id) for bootstrap in pair]
        assert answers[0] == answers[1]
    edit(pair, "all", ("metrics", SET, "*,x."), ("interval.ms", SET, "1000"))
    eventually(lambda: "'*'" in str(asked(pair.genuine, "probe")))
    assert story(pair, lambda teller: teller.get(), "asked")
    changed = [Teller(bootstrap, "changed") for bootstrap in pair]
    before = [teller.get() for teller in changed]
    edit(pair, "all", ("interval.ms", SET, "1500"))
    eventually(lambda: "1500" in str(asked(pair.genuine, "probe")))
    pushed = [teller.push(b"m") for teller in changed]
    assert pushed == [ErrorCode.UNKNOWN_SUBSCRIPTION_ID] * 2
    after = [teller.get() for teller in changed]
    assert before[0] == before[1] != after[0] == after[1]
    assert [teller.push(b"m") for teller in changed] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2
    for teller in changed:
        teller.close()
    for name in ("some", "named", "strangers", "local", "all"):
        resource = ac.AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=[])
        for bootstrap in pair:
            ask(bootstrap, ac.AlterConfigsRequest(resources=[resource], validate_only=False), 2)
