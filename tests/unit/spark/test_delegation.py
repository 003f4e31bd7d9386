"""When the driver renews its delegation token, or asks for another one; where it is kept."""

import os
import tempfile
from pathlib import Path

import pytest

from ottla.spark.client_settings import as_settings
from ottla.spark.delegation import KeptToken, Next, for_tasks, judged, without_login
from ottla.spark.errors import OptionError, SourceError

TOKEN = KeptToken("id", "pencil", made_ms=0, renewed_ms=0, expires_ms=1_000, max_ms=10_000)


@pytest.mark.parametrize(
    ("now_ms", "renewed_ms", "expires_ms", "expected"),
    [
        (0, 0, 1_000, Next.USE),
        (499, 0, 1_000, Next.USE),
        (500, 0, 1_000, Next.RENEW),
        (1_000, 0, 1_000, Next.REPLACE),
        (1_000, 900, 1_900, Next.USE),
        (7_400, 7_200, 8_200, Next.USE),
        (7_500, 7_400, 8_400, Next.REPLACE),  # renewals end soon
    ],
)
def test_a_token_is_renewed_in_time(now_ms: int, renewed_ms: int, expires_ms: int, expected: Next) -> None:
    assert judged(TOKEN._replace(renewed_ms=renewed_ms, expires_ms=expires_ms), now_ms) is expected
    assert judged(None, now_ms) is Next.REPLACE


def test_tasks_get_nothing_of_the_drivers_user() -> None:
    client = as_settings(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_SSL",
            "sasl.password": "pencil",
            "sasl.oauthbearer.client.secret": "pencil",
            "ssl.keystore.location": "/own.p12",
            "ssl.key.pem": "pencil",
            "ssl.ca.location": "/ca.pem",
        }
    )
    assert dict(without_login(client)) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca.pem",
    }
    assert "pencil" not in repr(TOKEN)
    with pytest.raises(OptionError, match=r"needs 'kafka\.security\.protocol' SASL_SSL"):
        for_tasks(as_settings({"bootstrap.servers": "a:1", "security.protocol": "SSL"}))


def test_a_directory_that_others_can_read_keeps_no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / f"ottla-tokens-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(SourceError, match="is open to other users"):
        for_tasks(as_settings({"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL"}))
