"""Settings beside their defaults, and beside those of another topic."""

from confluent_kafka.admin import ConfigEntry, ConfigSource

from ottla.console.topic_settings import HIDDEN, Setting, _setting, compared

OWN, DEFAULT = ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DEFAULT_CONFIG


def entry(
    value: str | None, source: ConfigSource, *synonyms: tuple[str, ConfigSource], secret: bool = False
) -> ConfigEntry:
    others = {str(number): ConfigEntry("log.n.ms", text, each) for number, (text, each) in enumerate(synonyms)}
    return ConfigEntry("n.ms", value, source, is_sensitive=secret, synonyms=others)


def test_what_a_setting_would_be_without_the_topics_own() -> None:
    found = _setting(entry("1", OWN, ("1", OWN), ("5", ConfigSource.STATIC_BROKER_CONFIG), ("9", DEFAULT)))
    assert found == Setting("1", "5", "this topic")


def test_a_brokers_setting_of_another_unit_is_named() -> None:
    hours = ConfigEntry("log.retention.hours", "168", DEFAULT)
    found = _setting(ConfigEntry("retention.ms", "1", OWN, synonyms={"log.retention.hours": hours}))
    assert found.otherwise == "log.retention.hours=168"


def test_a_secret_is_never_shown() -> None:
    assert _setting(entry(None, OWN, secret=True)).value == HIDDEN


def test_what_differs_comes_first() -> None:
    mine = {"a": Setting("1", "1", ""), "b": Setting("2", "1", "this topic")}
    assert [(each.name, each.differs) for each in compared(mine, None)] == [("b", True), ("a", False)]
    theirs = {"a": Setting("3", "1", "this topic"), "b": Setting("2", "1", ""), "c": Setting("", None, "")}
    assert [(each.name, each.differs) for each in compared(mine, theirs)] == [("a", True), ("c", True), ("b", False)]
