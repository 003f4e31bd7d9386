"""What the README says of the product is what the product says."""

import re
from pathlib import Path

import pytest

from ottla.server.routing import ROUTES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def between(text: str, name: str) -> str:
    found = re.search(rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", text, re.DOTALL)
    assert found, f"the markers of {name} are gone"
    return found.group(1)


def api_table() -> str:
    rows = sorted(ROUTES.values(), key=lambda route: route.api_key)
    lines = ["| key | API | versions |", "|---:|---|---|"]
    for route in rows:
        name = route.api_key.name.title().replace("_", "")
        lowest, highest = route.min_version, route.max_version
        versions = f"{lowest}-{highest}" if highest > lowest else lowest
        lines.append(f"| {int(route.api_key)} | {name} | {versions} |")
    return "\n".join(lines) + "\n"


def test_the_list_of_apis_is_the_routing_table() -> None:
    assert between(README, "apis") == api_table()


def test_the_table_of_scripts_is_that_of_the_command_line() -> None:
    documented = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert between(README, "kafka-scripts") == between(documented, "kafka-scripts")


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_the_examples_are_python(block: str) -> None:
    compile(block, "README.md", "exec")


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_links_lead_somewhere(target: str) -> None:
    assert (ROOT / target).exists()
