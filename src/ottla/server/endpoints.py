"""The address at which a client finds a broker."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.cluster.image import BrokerImage
    from ottla.server.context import RequestContext

EVERY_INTERFACE: Final = frozenset(("", "0.0.0.0", "::"))


def address_of(broker: "BrokerImage", context: "RequestContext") -> tuple[str, int] | None:
    """Host and port of the broker's listener that this client uses; None if the broker has no such listener.

    A broker that listens on every interface and advertises nothing is found where the client has just found it.
    """
    endpoint = broker.endpoints.get(context.listener)
    if endpoint is None:
        return None
    host, port = endpoint
    return (context.local_host if host in EVERY_INTERFACE else host), port
