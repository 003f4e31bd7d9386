"""DescribeUserScramCredentials (v0): which SCRAM mechanisms users have, never their secrets (KIP-554)."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.cluster.image import ResourceType
from ottla.cluster.scram_credentials import SCRAM_CODES, parse_credential
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage
    from ottla.metadata.view import MetadataView
    from ottla.slices import Slices, Steps


async def handle(
    metadata: "MetadataView", slices: "Slices", request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Those of the named users, or of all that have any."""
    known = await slices.run(_known(metadata.image))
    if not request.users:
        return DescribeUserScramCredentialsResponse(
            results=[DescribeUserScramCredentialsResult(user=name, credential_infos=known[name]) for name in known]
        )
    often = Counter(user.name for user in request.users)
    return DescribeUserScramCredentialsResponse(results=[_described(name, often[name], known) for name in often])


def _known(image: "MetadataImage") -> "Steps[dict[str, list[CredentialInfo]]]":
    found = {}
    for (kind, name), configs in image.configs.items():
        if kind is ResourceType.USER and (infos := _infos(configs)):
            found[name] = infos
            yield
    return found


def _described(name: str, times: int, known: dict[str, list[CredentialInfo]]) -> DescribeUserScramCredentialsResult:
    if times > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif name not in known:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        return DescribeUserScramCredentialsResult(user=name, credential_infos=known[name])
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message, credential_infos=[])


def _infos(configs: Mapping[str, str]) -> list[CredentialInfo]:
    return [
        CredentialInfo(mechanism=code, iterations=parse_credential(configs[mechanism]).iterations)
        for code, mechanism in SCRAM_CODES.items()
        if mechanism in configs
    ]
