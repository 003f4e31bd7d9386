"""Guards of requests about settings."""

import re
from typing import TYPE_CHECKING, Any, Final

from ottla.cluster.image import ResourceType as ConfigType
from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.alter_configs import AlterConfigsResourceResponse
from ottla.protocol.messages.describe_configs import DescribeConfigsResult
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalAlterConfigsResourceResponse,
)
from ottla.security.authorization import Operation
from ottla.server.access.access import Access, Guard, Verdict
from ottla.server.access.whole import MESSAGES

if TYPE_CHECKING:
    from ottla.server.context import RequestContext

TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

_LOGINS: Final = re.compile(
    r"(?:.*\.)?(?:sasl|ssl)\..*|listeners|listener\.security\.protocol\.map|principal\.builder\.class", re.IGNORECASE
)
"""Settings of brokers that decide which user a client is: an alien authority, or a password for a super user's name."""


def _decides_who_clients_are(access: Access, resource: Any, *, replaces: bool) -> bool:
    """Whether a change of settings takes ALTER on the cluster, too, with which a client may give itself every right."""
    if resource.resource_type != ConfigType.BROKER:
        return False
    changed = {config.name for config in resource.configs}
    if replaces:  # what is not mentioned is removed
        changed |= access.metadata.image.config(ConfigType.BROKER, resource.resource_name).keys()
    return any(_LOGINS.fullmatch(name) for name in changed)


def _may_config(access: Access, operation: Operation, resource: Any, *, replaces: bool) -> ErrorCode:
    """NONE, or why the client may not see or change the settings of a resource."""
    if operation is Operation.ALTER_CONFIGS and _decides_who_clients_are(access, resource, replaces=replaces):
        return ErrorCode.NONE if access.may_cluster(Operation.ALTER) else CLUSTER_REFUSED
    match resource.resource_type:
        case ConfigType.TOPIC:
            allowed, code = access.may_topic(operation, resource.resource_name), TOPIC_REFUSED
        case ConfigType.GROUP:
            allowed = access.may_group(operation, resource.resource_name)
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        case _:
            allowed, code = access.may_cluster(operation), CLUSTER_REFUSED
    return ErrorCode.NONE if allowed else code


def _configs(operation: Operation, answer_type: Any, list_name: str) -> Guard:
    def guard(access: Access, request: Any, context: "RequestContext") -> Verdict:
        replaces = context.api_key is ApiKey.ALTER_CONFIGS
        codes = [_may_config(access, operation, resource, replaces=replaces) for resource in request.resources]
        if not any(codes):
            return None
        answers = []
        for resource, code in zip(request.resources, codes, strict=True):
            if code is not ErrorCode.NONE:
                answer = answer_type(
                    error_code=code,
                    error_message=MESSAGES[code],
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    **({"configs": []} if answer_type is DescribeConfigsResult else {}),
                )
                answers.append(answer)
        request.resources = [
            resource for resource, code in zip(request.resources, codes, strict=True) if code is ErrorCode.NONE
        ]

        def complete(answer: Any) -> None:
            getattr(answer, list_name).extend(answers)

        return complete

    return guard


describe_configs = _configs(Operation.DESCRIBE_CONFIGS, DescribeConfigsResult, "results")
alter_configs = _configs(Operation.ALTER_CONFIGS, AlterConfigsResourceResponse, "responses")
incremental_alter_configs = _configs(Operation.ALTER_CONFIGS, IncrementalAlterConfigsResourceResponse, "responses")
