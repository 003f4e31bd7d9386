"""One thread parses at a time, on a Python that cannot do it in several (gh-106905).

Brokers and workers that run in threads of a test import some modules late, several at once. Where pytest rewrites them,
`ast.parse` fails here and there with "AST constructor recursion depth mismatch".
"""

import ast
import os
import threading
from typing import Any, Final

SINCE: Final = (3, 11, 8)
"""The Python that can."""
_LOCK: Final = threading.RLock()
_parse: Final = ast.parse


def install() -> None:
    """Replace `ast.parse`, for pytest and for `inspect`."""
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)
    ast.parse = parse


def parse(*given: Any, **named: Any) -> Any:
    with _LOCK:
        return _parse(*given, **named)
