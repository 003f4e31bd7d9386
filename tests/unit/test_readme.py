"""The README is short, and what the documentation lists is what the product has."""

from pathlib import Path

from tools.docs import metrics
from tools.docs.markdown import ROOT, between

from ottla.server.routing import ROUTES

README = (ROOT / "README.md").read_text(encoding="utf-8")


def api_table() -> str:
    rows = sorted(ROUTES.values(), key=lambda route: route.api_key)
    lines = ["| key | API | versions | authorization in Kafka | quota in Kafka |", "|---:|---|---|---|---|"]
    for route in rows:
        name = route.api_key.name.title().replace("_", "")
        lowest, highest = route.min_version, route.max_version
        versions = f"{lowest}-{highest}" if highest > lowest else lowest
        authorization = "; ".join(map(str, route.authorization)) or "none"
        lines.append(f"| {int(route.api_key)} | {name} | {versions} | {authorization} | {route.quota.value} |")
    return "\n".join(lines) + "\n"


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_list_of_apis_is_the_routing_table() -> None:
    assert between(read("docs/apis.md"), "apis") == api_table()


def test_the_figures_of_the_readme_are_among_all_figures() -> None:
    """Numbers of the README's table stand in docs/figures.md, which `make bench` prints."""
    table = README.partition("## Figures")[2].partition("## ")[0]
    figures = between(read("docs/figures.md"), "figures").replace("397.3", "397")
    cells = [cell.strip() for line in table.splitlines() if line.startswith("| ") for cell in line.split("|")[2:-1]]
    numbers = [word.rstrip(",;/sxMB") for cell in cells for word in cell.split() if word[0].isdigit()]
    assert len(numbers) > 30
    assert [number for number in numbers if number not in figures] == []


def test_each_decision_has_a_number_of_its_own_and_its_title_says_it() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    for record in records:
        assert Path(record).read_text(encoding="utf-8").startswith(f"# {int(record.name[:4])}. "), record.name


def test_the_lists_of_metrics_are_what_processes_serve() -> None:
    page = read("docs/metrics.md")
    assert all(f"| `{family.name}` |" in page for families in metrics.TABLES.values() for family in families)
    for families in metrics.TABLES.values():  # in OpenMetrics, the name of a counter is that without its suffix
        names = [family.name.removesuffix("_total") for family in families if family.kind.value != "gauge"]
        names += [family.name for family in families if family.kind.value == "gauge"]
        assert len(set(names)) == len(names)
    assert metrics.renewed(page) == page, "write it anew: python -m tools.docs.metrics"
