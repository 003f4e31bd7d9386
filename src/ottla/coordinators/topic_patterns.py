"""Regular expressions of subscriptions (KIP-848): what is wrong with one, and which names it matches.

They are RE2's, as in Kafka, which takes the Java port of the same library: the time to match grows with the length of a
name alone, so that no member can hold up its coordinator with an expression. Compiling takes a moment, and is bounded
by the memory that the result may take; matching every topic of a large cluster is left to a thread.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import cache, lru_cache
from typing import Any, Final

from ottla.ids import TopicName

MAX_PATTERN_BYTES: Final = 2 << 20
"""What a compiled expression may take: 25 ms of compiling at most. RE2's own limit is four times as high."""
KEPT_PATTERNS: Final = 64
"""At their largest they take 128 MB together. Any other is compiled anew, in the thread that matches."""


def regex_problem(regex: str) -> str | None:
    """RE2's description of an error in an expression; None when it is valid."""
    compiled = _compile(regex)
    return compiled if isinstance(compiled, str) else None


def matcher(regex: str) -> Callable[[str], object]:
    """A function that tests whether a whole name matches. Raises ValueError with RE2's description of an error."""
    compiled = _compile(regex)
    if isinstance(compiled, str):
        raise ValueError(compiled)
    match: Callable[[str], object] = compiled.fullmatch
    return match


async def matching_topics(
    regexes: Iterable[str], names: Collection[TopicName], may_describe: Callable[[str], bool] | None = None
) -> dict[str, frozenset[TopicName]]:
    """The topics whose whole name matches, for each of the expressions; an expression that is bad matches none.

    `may_describe` is asked in the thread, for each topic that matches: those it does not allow are left out.
    """
    return await asyncio.to_thread(_match_all, tuple(regexes), names, may_describe)


def _match_all(
    regexes: tuple[str, ...], names: Collection[TopicName], may_describe: Callable[[str], bool] | None
) -> dict[str, frozenset[TopicName]]:
    found: dict[str, frozenset[TopicName]] = {}
    for regex in regexes:
        compiled = _compile(regex)
        matches = None if isinstance(compiled, str) else compiled.fullmatch
        found[regex] = frozenset() if matches is None else frozenset(name for name in names if matches(name))
    if may_describe is None:
        return found
    allowed = {name for name in frozenset().union(*found.values()) if may_describe(name)}
    return {regex: topics & allowed for regex, topics in found.items()}


@lru_cache(KEPT_PATTERNS)
def _compile(regex: str) -> Any:
    """The pattern, or what is wrong with it."""
    import re2  # only a broker with such subscriptions pays for it

    try:
        return re2.compile(regex, _options())
    except re2.error as error:
        (problem,) = error.args
        return problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
    except UnicodeEncodeError:
        return "invalid UTF-8"


@cache
def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False  # to stderr; the client gets the error
    options.max_mem = MAX_PATTERN_BYTES
    return options
