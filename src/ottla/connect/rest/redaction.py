"""Hides the passwords in configurations from users that may only read. PURE.

Kafka Connect shows configurations as they were given, to every user of its REST API. Users that may
change configurations see them so here, too.
"""

import re
from collections.abc import Callable, Collection
from typing import Any, Final

from ottla.connect.secret_names import SECRET_NAMES

HIDDEN: Final = "[hidden]"
_LOGIN: Final = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_PARAMETER: Final = re.compile(
    r"([?&;](?:\w*password|\w*secret|\w*token|(?:api|access)[._-]?key|sig)=)[^&;\s]+", re.IGNORECASE
)


def redacted(body: Any, password_names: Callable[[str], Collection[str]], clean: Callable[[str], str]) -> Any:
    """An answer without passwords.

    password_names: the settings of a `connector.class` that are passwords. clean: takes known secrets out of a text.
    """
    if isinstance(body, dict):
        own = body.get("connector.class")
        names = password_names(own) if isinstance(own, str) else ()
        return {
            name: HIDDEN if _is_secret(name, value, names) else redacted(value, password_names, clean)
            for name, value in body.items()
        }
    if isinstance(body, list | tuple):
        return [redacted(each, password_names, clean) for each in body]
    if isinstance(body, str):
        return _PARAMETER.sub(rf"\1{HIDDEN}", _LOGIN.sub(rf"\1{HIDDEN}@", clean(body)))
    return body


def _is_secret(name: str, value: Any, own: Collection[str]) -> bool:
    """A placeholder is none: it stands for one."""
    is_text = isinstance(value, str) and bool(value) and not (value.startswith("${") and value.endswith("}"))
    return is_text and (name in own or SECRET_NAMES.search(name) is not None)
