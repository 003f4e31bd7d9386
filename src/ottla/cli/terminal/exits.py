"""Exit codes of every `ottla` command, and the exception that carries a failure's one sentence to the user."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
"""The operation was understood and did not succeed, or only in part."""
USAGE: Final = 2
"""The command line itself is wrong: unknown command or option, value out of range, missing confirmation."""
INTERRUPTED: Final = 130
"""Ctrl-C (128 + SIGINT)."""
TERMINATED: Final = 143
"""SIGTERM (128 + SIGTERM)."""


class CommandFailed(Exception):
    """The operation did not succeed; the text is one sentence saying what happened and what to do."""
