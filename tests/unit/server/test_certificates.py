"""Contexts that follow files and settings, and warnings before the end of a certificate."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.certificates import Authority

from ottla.config import load
from ottla.config.broker import BrokerConfig
from ottla.errors import InvalidConfig
from ottla.server import certificates
from ottla.server.certificates import Certificates


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def config(path: Path) -> BrokerConfig:
    given = {"listeners": "SSL://localhost:1", "ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
    return load(None, given)[0]


@contextmanager
def followed(settings: BrokerConfig, now: datetime | None = None) -> Iterator[tuple[Certificates, asyncio.Runner]]:
    with asyncio.Runner() as runner:
        made = Certificates(runner.get_loop(), None if now is None else lambda: now)
        made.add(settings, "SSL")

        async def begin() -> None:
            made.follow(settings)
            await asyncio.sleep(0)

        runner.run(begin())
        yield made, runner
        runner.run(made.close())


def test_a_file_that_cannot_be_used_or_breaks_the_reader_changes_nothing(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = authority.issue("broker").write_pem(tmp_path / "broker.pem")
    with followed(config(path)) as (made, runner):
        before = made._known["SSL"].server
        path.write_text("rubbish")
        runner.run(made.refresh())
        runner.run(made.refresh())
        assert made._known["SSL"].server is before
        assert caplog.text.count("goes on with the certificates that it has") == 1

        def fail(settings: object) -> None:
            raise RuntimeError("a defect")

        with monkeypatch.context() as patched:
            patched.setattr(certificates, "server_context", fail)
            path.write_text("other rubbish")
            runner.run(made.refresh())
        assert made._known["SSL"].server is before
        authority.issue("broker").write_pem(path)
        runner.run(made.refresh())
        assert made._known["SSL"].server is not before


def test_settings_that_changed_are_followed_and_checked_before(authority: Authority, tmp_path: Path) -> None:
    first = authority.issue("broker").write_pem(tmp_path / "first.pem")
    second = authority.issue("broker").write_pem(tmp_path / "second.pem")
    with followed(config(first)) as (made, runner):
        before = made._known["SSL"].server
        with pytest.raises(InvalidConfig, match=r"^listener SSL: .*missing\.pem cannot be read"):
            runner.run(made.check(config(tmp_path / "missing.pem")))
        runner.run(made.check(config(second)))
        assert made._known["SSL"].server is before
        made.follow(config(second))
        runner.run(made.refresh())
        assert made._known["SSL"].server is not before


@pytest.mark.parametrize(
    ("days_left", "expected"),
    [(31, None), (29, "in 28 days"), (6.5, "in 6 days"), (0.5, "in 0 days"), (-1, "and clients refuse it")],
)
def test_the_end_of_a_certificate_is_announced(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, days_left: float, expected: str | None
) -> None:
    caplog.set_level(logging.WARNING)
    issued = authority.issue("broker", days=60)
    ends = issued.certificate.not_valid_after_utc
    now = ends - timedelta(days=days_left) + timedelta(seconds=1)
    assert now > datetime.now(UTC) - timedelta(days=1)
    with followed(config(issued.write_pem(tmp_path / "broker.pem")), now):
        assert (expected in caplog.text) if expected else caplog.text == ""
