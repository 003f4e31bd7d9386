"""From Kerberos principals to short names, by `sasl.kerberos.principal.to.local.rules`. PURE.

    kafka/broker.example@EXAMPLE --> RULE:[2:$1@$0](kafka@EXAMPLE)s/@.*// --> kafka

    [2:$1@$0]       for principals of two components; $0 is the realm, $1 and $2 are the components
    (kafka@EXAMPLE) applies if the pattern matches all of it
    s/@.*//g        replaces the first match, with g each; then L or U for lower or upper case

Sources: Kafka's `KerberosShortNamer`, `KerberosRule`, `KerberosName` (KIP-190 for L, U).
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ottla.security.java_patterns import Substitution, compiled, matches, refused, substitution
from ottla.security.principals import UnnamedClient

RULES: Final = "sasl.kerberos.principal.to.local.rules"
_RULE: Final = re.compile(
    r"(DEFAULT)|RULE:\[(\d*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU])?", re.DOTALL
)
_PARAMETER: Final = re.compile(r"\$(\d*)")
_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_LARGEST_COMPONENTS: Final = 2


class _Rule(NamedTuple):
    default_realm: str
    components: int
    """How many a principal must have; 0 for DEFAULT."""
    form: str
    pattern: Any
    """An `re2` pattern; None for any name."""
    substitution: Substitution | None
    is_repeated: bool
    case: str

    def apply(self, parts: Sequence[str]) -> str | None:
        """The short name of realm and components; None if the rule is not for them. Raises `UnnamedClient`."""
        if not self.components:
            short = parts[1] if parts[0] == self.default_realm else None
        elif len(parts) - 1 == self.components:
            base = _PARAMETER.sub(lambda found: parts[int(found.group(1))], self.form)
            if self.pattern is not None and not matches(self.pattern, base):
                return None
            short = base if self.substitution is None else self.substitution.apply(base, once=not self.is_repeated)
        else:
            short = None
        if short is None:
            return None
        if "/" in short or "@" in short:
            raise UnnamedClient(f"{RULES} makes {short!r} of its principal, which is no simple name")
        return short.lower() if self.case == "L" else short.upper() if self.case == "U" else short


def short_names(rules: Sequence[str], default_realm: str) -> Callable[[str], str]:
    """The function from a principal such as `alice@EXAMPLE` to its short name, by the first rule that gives one.

    Raises `InvalidConfig` for rules that cannot be read; the function raises `UnnamedClient` where no rule applies, as
    in Kafka.
    """
    read = tuple(_rule(text.strip(), default_realm) for text in rules)

    def short(principal: str) -> str:
        found = _NAME.fullmatch(principal)
        if found is None or "\\" in principal:  # how the library writes a sign within a component
            raise UnnamedClient(f"{principal!r} is no principal of Kerberos")
        name, host, realm = found.groups()
        parts = (realm, name) if host is None else (realm, name, host)
        for rule in read:
            result = rule.apply(parts)
            if result == "":
                raise UnnamedClient(f"{RULES} makes an empty name of {principal}")
            if result is not None:
                return result
        raise UnnamedClient(f"no rule of {RULES} applies to {principal}")

    return short


def check_rules(rules: Sequence[str]) -> None:
    """Raise `InvalidConfig` for rules that cannot be read."""
    short_names(rules, "")


def _rule(text: str, default_realm: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise refused(RULES, text, "it has neither the form RULE:[n:$1](pattern)s/pattern/replacement/ nor DEFAULT")
    default, count, form, pattern, wanted, replacement, is_repeated, case = found.groups()
    if default:
        return _Rule(default_realm, 0, "", None, None, False, "")
    components = int(count or 0)
    if not 1 <= components <= _LARGEST_COMPONENTS:
        raise refused(RULES, text, f"a principal has 1 or {_LARGEST_COMPONENTS} components")
    for number in _PARAMETER.findall(form):
        if not number or int(number) > components:
            raise refused(RULES, text, f"${number} is neither $0, the realm, nor one of {components} components")
    return _Rule(
        default_realm,
        components,
        form,
        None if pattern is None else compiled(RULES, pattern),
        None if wanted is None else substitution(RULES, wanted, replacement),
        is_repeated is not None,
        case or "",
    )
