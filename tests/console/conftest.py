"""One browser for all tests of the console."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright
from tests.support.requirements import require


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=require("chromium"), args=["--no-sandbox"])
        yield started
        started.close()
