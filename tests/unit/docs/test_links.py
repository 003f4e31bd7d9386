"""Every link of the documentation leads to a file, and every anchor to a heading."""

from pathlib import Path

import pytest
from tools.docs.markdown import ROOT, anchors, blocks, links, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for link in links(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            dead.append(link)
    assert not dead


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_are_python(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8"), "python"):
        compile(block.text, str(page), "exec")


def test_anchors_are_those_of_headings_in_the_prose() -> None:
    text = "# A broker's `disk`: gone\n## [Link](there.md) it\n```sh\n# no heading\n```\n## Twice\n## Twice\n"
    assert anchors(text) == {"a-brokers-disk-gone", "link-it", "twice", "twice-1"}
