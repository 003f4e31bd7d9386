"""PURE. Delegation tokens in the metadata store, as Kafka 3.9 keeps them.

    /delegation_token/tokens/<id>                          {"version":3,"owner":"User%3Aalice","renewers":[...],...}
    /delegation_token/token_changes/token_change_0000000001   <id>: that token has changed

Source: Kafka 3.9, `ZkData` and `DelegationTokenManagerZk`.
"""

import json
from typing import Final
from urllib.parse import quote, unquote

from ottla.metadata.store.base import Create, Node
from ottla.metadata.store.layout import MalformedNode
from ottla.security.delegation_tokens import DelegationToken

TOKENS_PATH: Final = "/delegation_token/tokens"
CHANGES_PATH: Final = "/delegation_token/token_changes"


def token_path(token_id: str) -> str:
    """Where a token stands."""
    return f"{TOKENS_PATH}/{token_id}"


def token_node(token: DelegationToken) -> bytes:
    """The node of a token."""
    value = {
        "version": 3,
        "owner": quote(token.owner, safe=""),
        "tokenRequester": quote(token.requester, safe=""),
        "renewers": [quote(renewer, safe="") for renewer in token.renewers],
        "tokenId": token.token_id,
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expires_ms,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def read_token(path: str, node: Node) -> DelegationToken:
    """The token of a node. Raises `MalformedNode`."""
    try:
        value = json.loads(node.data)
        owner = unquote(value["owner"])
        return DelegationToken(
            str(value["tokenId"]),
            owner,
            unquote(value.get("tokenRequester", value["owner"])),
            tuple(unquote(renewer) for renewer in value["renewers"]),
            int(value["issueTimestamp"]),
            int(value["maxTimestamp"]),
            int(value["expiryTimestamp"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedNode(f"the metadata at {path} cannot be read: {error!r}") from error


def change_notification(token_id: str) -> Create:
    """What notifies other brokers."""
    return Create(f"{CHANGES_PATH}/token_change_", token_id.encode(), sequential=True)
