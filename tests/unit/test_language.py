"""The project's English: no banned phrases, no bare log formats, docstrings that begin with their subject."""

from pathlib import Path

import pytest
from tests.support.language import Finding, findings, phrases, table

PENDING: set[str] = set()
"""Packages that may still have findings: none, and none may be added."""


@pytest.fixture(scope="module")
def everything() -> list[Finding]:
    return list(findings())


def test_language(everything: list[Finding]) -> None:
    found = [finding for finding in everything if finding.pattern != "no docstring"]
    print(table(found))
    listed = [f"{one.file}:{one.line}: {one.pattern}: {one.text}" for one in found if one.package not in PENDING]
    assert not listed, "\n".join(listed)


def test_every_public_name_has_a_docstring(everything: list[Finding]) -> None:
    found = [finding for finding in everything if finding.pattern == "no docstring"]
    listed = "\n".join(f"{one.file}:{one.line}: {one.text}" for one in found)
    assert not found, listed


@pytest.mark.parametrize(
    ("source", "pattern"),
    [
        ('"""Of the topic, its leader."""\n', "Of ..."),
        ("x = 1  # the broker who leads\n", "who"),
        ("x = 1  # whoever leads\n", "whoever"),
        ("x = 1  # the peer is told so\n", "told"),
        ("x = 1  # as the log says\n", "said"),
        ("x = 1  # nothing was heard of it\n", "heard"),
        ('raise ValueError("it leads no more")\n', "no more"),
    ],
)
def test_each_pattern_is_found(tmp_path: Path, source: str, pattern: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(source)
    assert [finding.pattern for finding in phrases(file)] == [pattern]


def test_people_may_be_who(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("x = 1  # operators who restart brokers; at most: no more than two\n")
    assert list(phrases(file)) == []
