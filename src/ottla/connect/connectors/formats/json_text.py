"""PURE: values of records as texts of JSON for readers that know nothing of Connect."""

import base64
import datetime as dt
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """What JSON does not know, as it does: bytes in base64, times in ISO 8601, decimals as texts. For `json.dumps`."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
