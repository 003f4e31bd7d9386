"""Prints every metric as Markdown: the tables of `docs/metrics.md` are what `tables` returns."""

from collections.abc import Iterator

from ottla.metrics.families import Family
from ottla.server.metrics.catalog import FAMILIES


def tables() -> str:
    """The table of all metrics of a broker."""
    return "\n".join(_rows(FAMILIES))


def _rows(families: tuple[Family, ...]) -> Iterator[str]:
    yield "| Metric | Type | Labels | Unit | Meaning |"
    yield "|---|---|---|---|---|"
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind.value} | {labels} | {family.unit} | {family.doc} |"


if __name__ == "__main__":
    print(tables())
