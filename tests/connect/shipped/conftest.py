"""The databases of the relational connectors: each test of them runs with all kinds."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tests.connect.shipped.databases import KINDS, emptied, server


@pytest.fixture(scope="session", params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(request.param, tmp_path_factory.mktemp("databases")) as found:
        yield found


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    found = emptied(url)
    yield found
    found.dispose()
