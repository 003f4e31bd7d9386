"""The table of settings, held against itself, the typed attributes, and the page that is printed from it."""

import typing
from pathlib import Path

import pytest

from ottla.config import load
from ottla.config.broker import BrokerConfig
from ottla.config.broker_quorum_settings import QUORUM
from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.config.documentation import configuration_page
from ottla.config.group_settings import GROUP_SETTINGS
from ottla.config.listeners import Listener
from ottla.config.log import LogConfig
from ottla.config.other_settings import OTHER_SETTINGS
from ottla.config.sasl import SASL_SETTINGS
from ottla.config.setting import Change, GzipLevel, Kind, OneOf, Range, Setting, parse_value, render_value
from ottla.config.tls import TLS_SETTINGS
from ottla.config.topic_settings import TOPIC_SETTINGS
from ottla.errors import InvalidConfig

REPOSITORY = Path(__file__).parents[3]
EVERY_SETTING = [*BROKER_SETTINGS.values(), *OTHER_SETTINGS.values(), *(t.setting for t in TOPIC_SETTINGS.values())]
COMPACTION = {name for name in BROKER_SETTINGS if name.startswith("log.cleaner.")}
TYPES = {
    Kind.BOOLEAN: bool,
    Kind.INT: int,
    Kind.SHORT: int,
    Kind.LONG: int,
    Kind.DOUBLE: float,
    Kind.STRING: str,
    Kind.LIST: tuple,
    Kind.PASSWORD: str,
    Kind.CLASS: str,
}


def test_no_setting_is_declared_twice() -> None:
    assert not set(BROKER_SETTINGS) & set(OTHER_SETTINGS)


@pytest.mark.parametrize("setting", EVERY_SETTING, ids=lambda setting: setting.name)
def test_a_default_is_a_value_and_the_text_a_sentence(setting: Setting) -> None:
    if setting.default is not None:
        value = setting.parse(setting.default)
        assert isinstance(value, TYPES[setting.kind])
        assert render_value(value) == setting.default
    assert setting.doc.endswith(".")
    assert setting.doc[0].isupper() or setting.doc[0] in "`"


OF_CONTROLLERS = {"controller_listeners", "advertised_controller_listeners", "controller_security_protocols"}
"""The other part of what `listeners`, `advertised.listeners` and the map of protocols name."""


def test_every_attribute_is_a_setting_and_every_setting_an_attribute() -> None:
    declared = set(typing.get_type_hints(BrokerConfig)) - {"given", "allow_insecure", "resolve", *OF_CONTROLLERS}
    assert declared | {"log_dir"} == {setting.attribute for setting in BROKER_SETTINGS.values()}


def test_attributes_have_the_types_they_declare() -> None:
    config = BrokerConfig({})
    hints = typing.get_type_hints(BrokerConfig)
    for name, setting in BROKER_SETTINGS.items():
        value = config.value(name)
        hint = hints.get(setting.attribute)
        if hint is None or (isinstance(hint, type) is False and typing.get_origin(hint) in (tuple, None)):
            continue
        if hint in (int, bool, str, float):
            assert type(value) is hint, name
            assert getattr(config, setting.attribute) == value


def test_topic_defaults_are_those_of_the_logs() -> None:
    assert BrokerConfig({}).log_config({}) == LogConfig()


def test_every_default_of_a_topic_is_that_of_the_settings_behind_it() -> None:
    config = BrokerConfig({})
    for name, topic in TOPIC_SETTINGS.items():
        assert config.topics.default(name) == parse_value(name, topic.setting.kind, topic.setting.default), name


def test_the_page_is_current() -> None:
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    assert page == configuration_page(), "print it anew: python -m ottla.config > docs/configuration.md"


def test_acted_on_means_that_something_reads_it() -> None:
    """A setting is read as an attribute somewhere, or stands behind a topic's or a group's setting."""
    sources = "\n".join(
        path.read_text()
        for path in (REPOSITORY / "src" / "ottla").rglob("*.py")
        if path.parent.name != "config" or path.name in ("broker.py", "zookeeper.py", "quorum.py")
    )
    behind = {synonym.name for topic in TOPIC_SETTINGS.values() for synonym in topic.synonyms}
    for group in GROUP_SETTINGS.values():
        behind |= {name for name in (group.default, group.least, group.most) if name is not None}
    behind |= (
        TLS_SETTINGS.keys() | SASL_SETTINGS.keys()
    )  # read with the prefix of a listener, in `config.tls` and `sasl`
    unread = [
        name
        for name, setting in BROKER_SETTINGS.items()
        if name not in behind and f".{setting.attribute}" not in sources and f'"{name}"' not in sources
    ]
    assert set(unread) - {setting.name for setting in QUORUM} <= COMPACTION


def test_what_can_be_changed_while_the_broker_runs_is_read_again_then() -> None:
    """Those behind the settings of topics: `MetadataService.log_config` resolves them anew; rates of copying, which
    the fetchers ask for; limits of connections, which `ConnectionLimits` follows; addresses, which `Listeners`
    follows; settings of TLS, which `Certificates` follows; defaults of groups, which are asked for each time; and
    what compaction, expiry and verification look up."""
    behind = {synonym.name for topic in TOPIC_SETTINGS.values() for synonym in topic.synonyms}
    changeable = {name for name, setting in BROKER_SETTINGS.items() if setting.change is not Change.READ_ONLY}
    rates = {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
    connections = {
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.connection.creation.rate",
    }
    intervals = {f"group.{kind}.assignment.interval.ms" for kind in ("consumer", "share", "streams")}
    looked_up = {
        "cordoned.log.dirs",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "producer.id.expiration.ms",
        "transaction.partition.verification.enable",
    }
    logins = {"sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol"}
    logins |= {"sasl.kerberos.service.name", "sasl.kerberos.principal.to.local.rules"}
    addresses = {"listeners", "listener.security.protocol.map"}
    tls = TLS_SETTINGS.keys() - {"ssl.principal.mapping.rules"}
    assert changeable - behind == rates | connections | intervals | looked_up | addresses | tls | logins


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, " TRUE ", True),
        (Kind.BOOLEAN, "false", False),
        (Kind.INT, " +5 ", 5),
        (Kind.INT, "-2147483648", -(2**31)),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.DOUBLE, "1e3", 1000.0),
        (Kind.LIST, " a , b,,c ", ("a", "b", "", "c")),
        (Kind.LIST, "  ", ()),
        (Kind.STRING, " a b ", "a b"),
        (Kind.LONG, None, None),
    ],
)
def test_values_are_read_as_kafka_reads_them(kind: Kind, text: str | None, value: object) -> None:
    assert parse_value("x", kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (Kind.BOOLEAN, "yes", "Expected value to be either true or false"),
        (Kind.INT, "2147483648", "Not a number of type INT"),
        (Kind.INT, "1_000", "Not a number of type INT"),
        (Kind.INT, "", "Not a number of type INT"),
        (Kind.SHORT, "32768", "Not a number of type SHORT"),
        (Kind.LONG, "1.5", "Not a number of type LONG"),
        (Kind.DOUBLE, "half", "Not a number of type DOUBLE"),
    ],
)
def test_what_kafka_refuses_is_refused_in_its_words(kind: Kind, text: str, problem: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_value("some.name", kind, text)
    assert str(refused.value) == f"Invalid value {text} for configuration some.name: {problem}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (12345678.0, "1.2345678E7"),
        (1e7, "1.0E7"),
        (1.5e300, "1.5E300"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-0.25, "-0.25"),
        (True, "true"),
        (("a", "b"), "a,b"),
        (7, "7"),
        (None, None),
    ],
)
def test_values_are_written_as_java_writes_them(value: typing.Any, text: str | None) -> None:
    assert render_value(value) == text


def test_limits() -> None:
    assert Range(1, 5).problem(0) == "Value must be at least 1"
    assert Range(1, 5).problem(6) == "Value must be no more than 5"
    assert Range(1, 5).problem(5) is None
    assert Range(None, 5).problem(-100) is None
    assert OneOf(("a", "b")).problem("A") == "String must be one of: a, b"
    assert OneOf(("a", "b"), any_case=True).problem("A") is None
    assert OneOf(("a", "b")).problem(("a", "b")) is None
    assert OneOf(("a", "b")).problem(()) is None
    assert GzipLevel().problem(0) == "Value must be between 1 and 9 or equal to -1"
    assert GzipLevel().problem(-1) is None


def test_a_broker_config_cannot_be_changed() -> None:
    config, _ = load(None, {})
    with pytest.raises(AttributeError):
        config.num_partitions = 5  # what is tried


def test_listeners_are_written_as_they_are_read() -> None:
    assert str(Listener("A", "::1", 9092, "PLAINTEXT")) == "A://[::1]:9092"
    assert str(Listener("A", "", 0, "PLAINTEXT")) == "A://:0"
