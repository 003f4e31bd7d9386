"""Principals of clients: the name that a certificate gives, and the rules that shorten it. PURE.

    certificate --> distinguished name, CN=alice,OU=Sales,O=Example --> ssl.principal.mapping.rules --> User:alice

Sources: RFC 2253 as Java's `X500Principal.getName` writes it, Kafka's `SslPrincipalMapper` (KIP-371).
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ottla.security.java_patterns import Substitution, matches, refused, substitution

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has proved no name."""
RULES: Final = "ssl.principal.mapping.rules"

_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|)\s*(?:,|$)")

_SEQUENCE: Final = 0x30
_OBJECT_IDENTIFIER: Final = 0x06
_VERSION: Final = 0xA0
_CHARSETS: Final = {
    0x0C: "utf-8",
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1E: "utf-16-be",  # BMPString
}
"""Kinds of text that Java writes as such; values of another kind are written in hexadecimal."""
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attributes with a name in RFC 2253; others are written as numbers."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACES: Final = " \r"


class UnnamedClient(ValueError):
    """A certificate gives its client no name. The text gives the reason."""


# -- distinguished names ---------------------------------------------------------------------------------------------


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate (DER). Raises `UnnamedClient` if it cannot be read."""
    try:
        ((_, content),) = _elements(certificate)
        _, signed = next(_elements(content))
        fields = [element for element in _elements(signed) if element[0] != _VERSION]
        subject = fields[4][1]  # after serial number, algorithm, issuer and validity
        names = [_relative_name(content) for _, content in _elements(subject)]
    except (ValueError, IndexError, StopIteration) as error:
        raise UnnamedClient(f"the subject of its certificate cannot be read: {error!r}") from error
    return ",".join(reversed(names))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each DER element."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + length > len(data):
            raise ValueError("an element is longer than what holds it")
        yield tag, data[at : at + length]
        at += length


def _relative_name(content: bytes) -> str:
    """One level of a name: mostly one attribute, else several, joined."""
    return "+".join(_attribute(attribute) for _, attribute in _elements(content))


def _attribute(content: bytes) -> str:
    (kind, number), (tag, value) = _elements(content)
    if kind != _OBJECT_IDENTIFIER:
        raise ValueError("an attribute has no type")
    dotted = _dotted(number)
    keyword, charset = _KEYWORDS.get(dotted), _CHARSETS.get(tag)
    if keyword is None or charset is None:
        return f"{keyword or dotted}=#{content[len(content) - _encoded_length(value) :].hex()}"
    return f"{keyword}={_escaped(value.decode(charset, 'replace'))}"


def _encoded_length(value: bytes) -> int:
    """Bytes of a DER element with this content."""
    length = len(value)
    return length + 2 + (0 if length < 0x80 else (length.bit_length() + 7) // 8)


def _dotted(number: bytes) -> str:
    parts: list[int] = []
    value = 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            parts.append(value)
            value = 0
    first = min(parts[0] // 40, 2)
    return ".".join(map(str, (first, parts[0] - 40 * first, *parts[1:])))


def _escaped(text: str) -> str:
    escaped = "".join("\\" + letter if letter in _ESCAPED else letter for letter in text).replace("\0", "\\00")
    middle = escaped.strip(_SPACES)
    lead = len(escaped) - len(escaped.lstrip(_SPACES))
    before, after = escaped[:lead], escaped[lead + len(middle) :]
    return "".join(f"\\{space}" for space in before) + middle + "".join(f"\\{space}" for space in after)


# -- rules -----------------------------------------------------------------------------------------------------------


class _Rule(NamedTuple):
    substitution: Substitution | None
    """None for DEFAULT."""
    case: str

    def apply(self, name: str) -> str | None:
        if self.substitution is None:
            return name
        if not matches(self.substitution.pattern, name):
            return None
        short = self.substitution.apply(name)  # what matches the whole name may be found in it more than once
        return short.lower() if self.case == "L" else short.upper() if self.case == "U" else short


def principal_rules(text: str) -> Callable[[bytes], str]:
    """From a certificate (DER) to `User:<name>`, by the first rule that matches its subject.

    Patterns are those of RE2, whose time grows with the length of the name only. Raises `InvalidConfig` for rules that
    cannot be read; the result raises `UnnamedClient` where no rule matches, as in Kafka.
    """
    rules = tuple(_rules(text))

    def principal(certificate: bytes) -> str:
        name = distinguished_name(certificate)
        for rule in rules:
            short = rule.apply(name)
            if short is not None:
                return f"User:{short}"
        raise UnnamedClient(f"no rule of {RULES} matches the name of its certificate, {name}")

    return principal


def _rules(text: str) -> Iterator[_Rule]:
    at, text = 0, text.strip()
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise refused(
                RULES, text[at:], "it has neither the form RULE:pattern/replacement/ (with L or U) nor DEFAULT"
            )
        at = found.end()
        default, pattern, replacement, case = found.groups()
        if default:
            yield _Rule(None, "")
        elif pattern is not None:
            yield _Rule(substitution(RULES, pattern, replacement), case)
