"""A browser for the tests of a file: its library runs an event loop, so that no other tests may come in between."""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from tests.support.requirements import require

_SHOWN_WITHIN_MS: Final = 30_000.0
expect.set_options(timeout=_SHOWN_WITHIN_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=require("chromium"), args=["--no-sandbox"])
        yield started
        started.close()
