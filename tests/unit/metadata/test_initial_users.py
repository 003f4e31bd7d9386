"""Users of the setting `initial.scram.users`, and what is no such list."""

import asyncio
from pathlib import Path

import pytest

from ottla.cluster.commands import SetConfigs, apply
from ottla.cluster.image import ResourceType, empty_image
from ottla.config.broker import BrokerConfig
from ottla.errors import InvalidConfig
from ottla.metadata.initial_users import InitialUser, add_initial_users, initial_users, warn_of_missing_users
from ottla.metadata.store.embedded import EmbeddedStore


def test_entries_are_those_of_kafka_storage() -> None:
    text = "SCRAM-SHA-256=[name=a,password=x,y=z] ; SCRAM-SHA-512=[iterations=8192,name=b,password=x]"
    assert initial_users(text) == [
        InitialUser("SCRAM-SHA-256", "a", "x,y=z", 4096),
        InitialUser("SCRAM-SHA-512", "b", "x", 8192),
    ]
    assert initial_users("") == []


@pytest.mark.parametrize(
    "text",
    [
        "alice:secret",
        "SCRAM-SHA-1=[name=a,password=secret]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[password=secret]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=1]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=99999]",
        "SCRAM-SHA-256=[name=a,password=secret",
    ],
)
def test_other_texts_are_refused_without_the_password(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"initial\.scram\.users") as refused:
        initial_users(text)
    assert "secret" not in str(refused.value)


def test_a_user_that_is_there_keeps_the_password(tmp_path: Path) -> None:
    def config(password: str) -> BrokerConfig:
        return BrokerConfig({"initial.scram.users": f"SCRAM-SHA-256=[name=a,password={password}]"})

    async def add_twice() -> tuple[bytes, bytes]:
        store = EmbeddedStore(tmp_path / "metadata.db")
        await store.open()
        found = []
        for password in ("first", "second"):
            await add_initial_users(store, config(password))
            found.append((await store.read("/config/users/a"))["/config/users/a"].data)
        await store.close()
        return found[0], found[1]

    first, second = asyncio.run(add_twice())
    assert first == second
    assert b"SCRAM-SHA-256" in first


def test_users_that_a_cluster_under_a_quorum_lacks_are_named(caplog: pytest.LogCaptureFixture) -> None:
    text = "SCRAM-SHA-512=[name=admin,password=secret],SCRAM-SHA-256=[name=admin,password=secret]"
    config = BrokerConfig({"initial.scram.users": text})
    image = apply(empty_image("c"), [SetConfigs(ResourceType.USER, "admin", {"SCRAM-SHA-512": "known"})])
    warn_of_missing_users(config, image)
    (warning,) = caplog.messages
    assert "no such users: admin (SCRAM-SHA-256);" in warning
    assert "secret" not in warning
    caplog.clear()
    warn_of_missing_users(BrokerConfig({}), image)
    assert caplog.messages == []
