"""Names that sinks are given, and names that they make."""

import re
from collections.abc import Sequence


def column_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name, or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def with_suffix(table: str, suffix: str) -> str:
    """`delays_replay_2` of `delays` and `replay-2`: a name that SQL takes without quotes."""
    return f"{table}_{re.sub(r'[^0-9A-Za-z_]', '_', suffix)}"
