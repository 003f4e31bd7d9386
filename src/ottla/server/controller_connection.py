"""The connection over which the controller speaks to this broker.

A controller that gets no answer in time connects again and sends its request once more. The first one may still be on
its way, and arrive behind what the controller has sent since: UpdateMetadata carries no number that would show it.

    connection 7    UpdateMetadata (all)  . . . . . . . . . . . . . . . . . . -> late
    connection 8                 UpdateMetadata (all) -> UpdateMetadata (newer) ->
"""

from ottla.server.framer import BadFrame


class ControllerConnection:
    """The newest one that has brought a request of the controller's. On the loop's thread."""

    def __init__(self) -> None:
        self._controller_epoch = -1
        self._connection_id = -1

    def check(self, controller_epoch: int, connection_id: int) -> None:
        """Heed a request, whose controller is not one of the past.

        Raises BadFrame, which closes the connection, if this controller has spoken over a later one: connections are
        numbered as they come.
        """
        if controller_epoch == self._controller_epoch and connection_id < self._connection_id:
            raise BadFrame("a request of the controller's that it has sent again since, over another connection")
        self._controller_epoch = controller_epoch
        self._connection_id = connection_id
