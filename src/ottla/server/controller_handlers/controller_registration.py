"""ControllerRegistration (v0): a controller's addresses and features (KIP-919)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum_controller import QuorumController


async def handle(
    controller: "QuorumController", request: ControllerRegistrationRequest, context: RequestContext
) -> ControllerRegistrationResponse:
    """Raises as `QuorumController.register_controller`."""
    await controller.register_controller(request)
    return ControllerRegistrationResponse()
