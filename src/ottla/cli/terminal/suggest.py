"""The nearest name to one that was mistyped."""

from collections.abc import Collection, Iterable


def nearest(wanted: str, known: Iterable[str]) -> str | None:
    """The known name most like `wanted`, or None if nothing is near."""
    from difflib import get_close_matches

    by_lower_case = {name.lower(): name for name in known}
    found = get_close_matches(wanted.lower(), list(by_lower_case), n=1, cutoff=0.6)
    return by_lower_case[found[0]] if found else None


def did_you_mean_or_list(wanted: str, known: Collection[str]) -> str:
    """`did_you_mean`, else what there is: `"; there are Empty, Stable"`. For names that are few."""
    return did_you_mean(wanted, known) or f"; there are {', '.join(known)}"


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """`"; did you mean 'orders'?"` when a known name is near, else an empty string."""
    found = nearest(wanted, known)
    return f"; did you mean {found!r}?" if found else ""
