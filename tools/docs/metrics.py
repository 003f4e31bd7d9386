"""Writes the tables of docs/metrics.md from what processes declare: `python -m tools.docs.metrics`."""

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.connect.runtime import metrics_catalog as connect
from ottla.console import metrics as console
from ottla.metrics.families import Family
from ottla.pipeline import metrics as pipeline
from ottla.server.metrics import catalog as broker
from tools.docs.markdown import ROOT

PAGE: Final = ROOT / "docs/metrics.md"
TABLES: Final = {
    "brokers": broker.FAMILIES,
    "workers of connectors": connect.FAMILIES,
    "jobs": pipeline.FAMILIES,
    "the console": console.FAMILIES,
}


def table(families: Iterable[Family]) -> str:
    """The metrics of one kind of process as Markdown."""
    return "\n".join(_rows(families))


def _rows(families: Iterable[Family]) -> Iterator[str]:
    yield "| Metric | Type | Labels | Unit | Meaning |"
    yield "|---|---|---|---|---|"
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind.value} | {labels} | {family.unit} | {family.doc} |"


def renewed(page: str) -> str:
    """The page with its tables as they should be."""
    for kind, families in TABLES.items():
        before, begin, rest = page.partition(f"<!-- metrics of {kind}: python -m tools.docs.metrics -->\n")
        _, end, after = rest.partition("<!-- /metrics -->")
        page = f"{before}{begin}\n{table(families)}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
