"""PURE. Names of users and client ids where a path, or the name of a resource, is made of them.

Source: Kafka 3.9, `Sanitizer`.
"""

from typing import Final
from urllib.parse import quote, unquote

DEFAULT: Final = ""
"""The name that stands for all that have no settings of their own."""
DEFAULT_NODE: Final = "<default>"


def node_of(name: str) -> str:
    """The last part of the path of a user or client id."""
    node = quote(name, safe="").replace("~", "%7E") or DEFAULT_NODE
    return node.replace(".", "%2E") if node in (".", "..") else node  # which mean something else in a path


def name_of(node: str) -> str:
    """The name behind the last part of a path."""
    return DEFAULT if node == DEFAULT_NODE else unquote(node)
