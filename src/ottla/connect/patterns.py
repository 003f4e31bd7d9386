"""Regular expressions of connectors, whose time is bounded. PURE.

Python's own expressions may take forever for a name of forty letters, `(a+)+b` for instance, and hold the whole process
meanwhile: other tasks, and the worker's heartbeats, so that its group hands the connector to the next worker. RE2 takes
a time that grows with the length of the name only. It has neither lookaround nor back references: expressions with
those are Python's, if each repetition in them is of a single letter or class, and they have three at most.
"""

import re
from typing import Any, Final

_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_CLASS: Final = re.compile(r"\[\^?\]?[^\]]*\]")
_GROUP: Final = re.compile(r"\(\?(?:P?<[A-Za-z_]\w*>|<?[=!]|[a-zA-Z:-]+)")
_REPETITION: Final = re.compile(r"[*+?]|\{\d*,?\d*\}")
_OF_GROUP: Final = re.compile(r"\)(?:[*+]|\{)")
_MOST_REPETITIONS: Final = 3


def compiled(text: str, *, any_case: bool = False) -> Any:
    """A pattern with Python's methods. Raises `re.error`, with the reason."""
    found: Any = re.compile(text, re.IGNORECASE if any_case else 0)
    import re2  # costs a worker without expressions nothing

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not any_case
    try:
        return re2.compile(text, options)
    except re2.error:
        if _is_bounded(text):
            return found
        raise re.error(
            "it has lookaround, a back reference or something else that RE2 has not, and it may take very long: write "
            "it without, or with three repetitions at most, each of a single letter or class"
        ) from None


def _is_bounded(text: str) -> bool:
    plain = _GROUP.sub("(", _CLASS.sub("x", _ESCAPE.sub("x", text)))
    if _OF_GROUP.search(plain):
        return False
    # the mark of a lazy or possessive repetition is none itself
    return len(_REPETITION.findall(re.sub(r"([*+?}])[?+]", r"\1", plain))) <= _MOST_REPETITIONS
