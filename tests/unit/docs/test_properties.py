"""Settings on the pages are files that a node takes as they are: text behind a value would belong to the value."""

import re
import textwrap
from pathlib import Path
from typing import Final

import pytest
from tools.docs.markdown import ROOT

from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.config.properties import parse_properties

_BLOCK: Final = re.compile(r"^ *```properties\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_PAGES: Final = [page for page in sorted((ROOT / "docs").glob("*.md")) if _BLOCK.search(page.read_text("utf-8"))]


def test_there_are_pages_with_settings() -> None:
    assert _PAGES


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_settings_can_be_copied_from_a_page(page: Path) -> None:
    for block in _BLOCK.findall(page.read_text("utf-8")):
        for name, text in parse_properties(textwrap.dedent(block)).items():
            assert " #" not in text, f"{name} of {page.name} has a comment in its value"
            if name in BROKER_SETTINGS:
                BROKER_SETTINGS[name].parse(text)
