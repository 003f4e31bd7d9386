"""Taking the offsets of some partitions out of a consumer group, for which the client library has no call.

The other offsets of the group stay as they are. To delete the group and commit those again would lose them all if the
worker died in between.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from ottla.admin import Admin
from ottla.admin.errors import RequestRefused
from ottla.client.errors import AuthenticationFailed, ClientError
from ottla.connect.errors import ConnectError, Retriable
from ottla.errors import ErrorCode

_CLIENT_ID: Final = "ottla-connect"
_HAS_MEMBERS: Final = (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)


class GroupHasMembers(Retriable):
    """Offsets of a group are changed when no task is left in it; one that has been stopped leaves in a moment."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; its tasks have not ended yet: try again")


def delete_offsets(client: Mapping[str, Any], group: str, partitions: Collection[tuple[str, int]]) -> None:
    """Forget the offsets of partitions.

    client: settings of the client library. Raises GroupHasMembers, Retriable, ConnectError.
    """
    properties = {name: value for name, value in client.items() if isinstance(value, str)}
    try:
        with Admin(properties["bootstrap.servers"], client_id=_CLIENT_ID, properties=properties) as admin:
            admin.delete_group_offsets(group, partitions)
    except (AuthenticationFailed, ValueError) as error:  # also a protection that this client does not know
        raise ConnectError(
            f"offsets of group {group} cannot be deleted one by one: {error}; delete all of them, and set those anew "
            "that are to stay"
        ) from error
    except RequestRefused as refused:
        if refused.code in _HAS_MEMBERS:
            raise GroupHasMembers(str(refused)) from refused
        raise Retriable(str(refused)) from refused
    except ClientError as error:
        raise Retriable(f"the offsets of group {group} cannot be changed: {error}") from error
