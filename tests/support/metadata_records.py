"""Metadata records as Kafka's tools print them, beside those of `ottla log dump --decode`."""

import base64
from typing import Any

from ottla.cli.log.metadata_log import HIDDEN

_KEYS = {"salt", "storedKey", "serverKey"}


def normal(value: Any) -> Any:
    """Fields of either side, by names without case and underscores."""
    if isinstance(value, dict):
        return {key.replace("_", "").lower(): normal(each) for key, each in value.items()}
    return [normal(each) for each in value] if isinstance(value, list) else value


def without_secrets(fields: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Kafka's fields with what `ottla log dump` hides: keys by their size, secret settings not at all."""
    hidden = {name: f"{len(base64.b64decode(fields[name]))} bytes" for name in fields.keys() & _KEYS}
    if ours.get("value") == HIDDEN:
        hidden["value"] = HIDDEN
    return {**fields, **hidden}
