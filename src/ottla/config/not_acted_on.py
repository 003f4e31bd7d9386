"""How settings are declared that Kafka knows and Ottla does not act on."""

from typing import Final

from ottla.config.changeable import CHANGEABLE
from ottla.config.setting import Change, Kind, Limit, NotEmpty, Setting

NOT_EMPTY: Final = NotEmpty()


def other(
    name: str, kind: Kind, default: str | None, doc: str, limit: Limit | None = None, *, internal: bool = False
) -> Setting:
    """A setting of brokers that has no effect; it can be changed when Kafka's can."""
    change = CHANGEABLE.get(name, Change.READ_ONLY)
    return Setting(name, kind, default, doc, limit, change, acted_on=False, internal=internal)
