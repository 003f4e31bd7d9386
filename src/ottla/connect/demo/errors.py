"""What can go wrong in the demo."""

from ottla.connect.errors import ConnectError


class DemoError(ConnectError):
    """The demo cannot go on, or what came out is wrong."""
