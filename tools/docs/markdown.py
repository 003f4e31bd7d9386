"""The pages of this repository, and what is in them: headings, links, blocks of code, commands."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PROSE: Final = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "benches/README.md",
    "tests/chaos/README.md",
)
"""Pages outside `docs`, relative to the root. The site shows them too."""

FENCE: Final = re.compile(r"^```(?P<language>[a-z]*)[^\n]*\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
SPAN: Final = re.compile(r"(?<!`)`(?P<text>[^`\n]+)`(?!`)")
LINK: Final = re.compile(r"\]\((?P<target>[^()\s]+)\)")
HEADING: Final = re.compile(r"^#{1,6} +(?P<text>.+?) *$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of code."""

    language: str
    text: str


def pages() -> list[Path]:
    """Every page that readers see, as absolute paths."""
    return [*(ROOT / name for name in PROSE), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, in order; of one language if it is given."""
    found = [Block(match["language"], match["text"]) for match in FENCE.finditer(text)]
    return [block for block in found if language in (None, block.language)]


def anchors(text: str) -> set[str]:
    """What a link to a heading of the page may name after `#`: lower case, spaces as hyphens, no punctuation."""
    found: set[str] = set()
    for match in HEADING.finditer(FENCE.sub("", text)):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", match["text"])
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def links(text: str) -> list[str]:
    """Targets of the page's links and pictures, without addresses on the web."""
    targets = (match["target"] for match in LINK.finditer(FENCE.sub("", text)))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def commands(text: str) -> Iterator[str]:
    """Lines of shell that a reader may type: those after `$` in blocks, and spans of code in the prose."""
    for block in blocks(text):
        if block.language == "console":
            yield from (line[2:] for line in block.text.replace("\\\n", " ").splitlines() if line.startswith("$ "))
        elif block.language in ("sh", "bash"):
            yield from block.text.replace("\\\n", " ").splitlines()
    for match in SPAN.finditer(FENCE.sub("", text)):
        yield match["text"].replace("\\|", "|")


def between(text: str, name: str) -> str:
    """What stands between the markers `name:begin` and `name:end`. Raises LookupError if they are gone."""
    found = re.search(rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", text, re.DOTALL)
    if found is None:
        raise LookupError(f"the markers of {name} are gone")
    return found[1]
