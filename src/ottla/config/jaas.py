"""JAAS configurations of one login module, as `sasl.jaas.config` has them. PURE.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" user_alice="secret";

Source: Kafka's `JaasConfig`, which reads them with Java's StreamTokenizer: words and quoted texts, with escapes.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.errors import InvalidConfig

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(r"""\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([=;])|([^\s"'=;]+))""")
_ESCAPE: Final = re.compile(r"\\(.)")
_SIGN: Final = "\0"
"""Distinguishes a sign from a quoted text of the same letter."""
_EQUALS: Final = _SIGN + "="
_END: Final = _SIGN + ";"
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class LoginModule(NamedTuple):
    """A login module's class and its options."""

    class_name: str
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        """The class without its package."""
        return self.class_name.rpartition(".")[2]

    def __repr__(self) -> str:
        """Without the values of its options: most are secrets."""
        return f"LoginModule({self.class_name}, {', '.join(self.options)})"


def login_module(setting: str, text: str) -> LoginModule:
    """The one login module of a configuration. Raises `InvalidConfig`, which names `setting` and quotes no option."""
    tokens = _tokens(setting, text)
    if len(tokens) < 2 or tokens[0] in (_EQUALS, _END):
        raise _malformed(setting, "it does not begin with the class of a login module")
    class_name, flag, *rest = tokens
    if flag.lower() not in _FLAGS:
        raise _malformed(setting, f"{class_name} is not followed by one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    while rest and rest[0] != _END:
        if len(rest) < 3 or rest[1] != _EQUALS or {rest[0], rest[2]} & {_EQUALS, _END}:
            raise _malformed(setting, f"option {len(options) + 1} is not of the form name=value")
        options[rest[0]] = rest[2]
        rest = rest[3:]
    if not rest:
        raise _malformed(setting, "it does not end with a semicolon")
    if len(rest) > 1:
        raise _malformed(setting, "it has more than one login module")
    return LoginModule(class_name, options)


def _tokens(setting: str, text: str) -> list[str]:
    tokens: list[str] = []
    text = text.strip()
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _malformed(setting, "a quotation mark is not closed")
        double, single, sign, word = found.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            tokens.append(_ESCAPE.sub(_unescaped, quoted))
        else:
            tokens.append(word if sign is None else _SIGN + sign)
        at = found.end()
    return tokens


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found.group(1), found.group(1))


def _malformed(setting: str, why: str) -> InvalidConfig:
    return InvalidConfig(
        f"{setting} is not a JAAS configuration: {why}; it has the form "
        '`org.apache.kafka.common.security.plain.PlainLoginModule required name="value" ...;`'
    )
