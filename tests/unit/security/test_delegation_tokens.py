"""Delegation tokens: how long they last, and for whom."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.errors import ApiError, ErrorCode
from ottla.metadata.store.base import Node
from ottla.metadata.store.token_layout import read_token, token_node
from ottla.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.security.delegation_tokens import Lifetimes, expired, new_token, renewed
from ottla.server.handlers import describe_delegation_token

TIMES = Lifetimes(longest_ms=7000, renewal_ms=1000)
TOKEN = new_token("id", "User:a*,b", "User:r", ("User:x", "User:y"), -1, 100, TIMES)


def test_a_life_ends_with_the_shortest_of_its_limits() -> None:
    assert (TOKEN.max_ms, TOKEN.expires_ms) == (7100, 1100)
    assert new_token("id", "User:a", "User:a", (), 500, 100, TIMES)[5:] == (600, 600)
    assert new_token("id", "User:a", "User:a", (), 10**9, 100, TIMES).max_ms == 7100
    assert renewed(TOKEN, "User:x", -1, 1000, TIMES).expires_ms == 2000
    assert renewed(TOKEN, "User:x", 10**9, 1000, TIMES).expires_ms == 2000
    late = TOKEN._replace(expires_ms=7050)
    assert renewed(late, "User:a*,b", -1, 7000, TIMES).expires_ms == 7100
    assert expired(TOKEN, "User:r", -1, 1000) is None
    shorter = expired(TOKEN, "User:r", 10, 1000)
    assert shorter is not None
    assert shorter.expires_ms == 1010


def test_only_those_concerned_may_change_a_token_and_only_while_it_lasts() -> None:
    for change in (
        lambda principal, now_ms: renewed(TOKEN, principal, -1, now_ms, TIMES),
        lambda principal, now_ms: expired(TOKEN, principal, 5, now_ms),
    ):
        with pytest.raises(ApiError) as refused:
            change("User:stranger", 200)
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        with pytest.raises(ApiError) as refused:
            change("User:x", 1100)
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_a_token_is_read_as_it_was_written() -> None:
    assert b"User%3Aa%2A%2Cb" in token_node(TOKEN)
    assert read_token("/x", Node(token_node(TOKEN), 0)) == TOKEN


def test_thousands_of_tokens_and_of_owners_are_not_compared_one_by_one_nor_at_once() -> None:
    class Looked(frozenset[str]):
        def __iter__(self) -> Any:
            raise AssertionError("the owners are gone through for each token")

    assert TOKEN.is_of_any(Looked({"User:y", "User:z"}))
    assert not TOKEN.is_of_any(Looked({"User:z"}))
    pauses: list[int] = []

    async def pause() -> None:
        pauses.append(1)

    tokens: Any = SimpleNamespace(all=lambda: [TOKEN] * 50, secret=lambda _: b"secret")
    metadata: Any = SimpleNamespace(config=SimpleNamespace(security_protocols={"OUTSIDE": "SASL_SSL"}))
    context: Any = SimpleNamespace(
        listener="OUTSIDE", principal="User:r", authentication=None, is_forwarded=False, is_by_token=False
    )
    asked = DescribeDelegationTokenRequest(
        owners=[DescribeDelegationTokenOwner(principal_type="User", principal_name="x")]
    )
    slices: Any = SimpleNamespace(pause=pause)
    found = asyncio.run(describe_delegation_token.handle(slices, tokens, None, metadata, asked, context))
    assert len(found.tokens) == len(pauses) == 50
