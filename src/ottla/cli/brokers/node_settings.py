"""The settings of a node whose files a command works on, while it does not run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig


def settings_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The file of settings, and settings that win over it."""
    function = click.option(
        "--override", "overrides", metavar="KEY=VALUE", multiple=True, help="A setting that wins over the file."
    )(function)
    return click.option(
        "--config",
        "-c",
        "file",
        metavar="SERVER.PROPERTIES",
        required=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The settings of the node.",
    )(function)


def node_settings(file: Path, overrides: Sequence[str]) -> "BrokerConfig":
    """The settings as they are; what they protect is not judged, since nothing listens. Raises InvalidConfig."""
    from ottla.config.broker import BrokerConfig
    from ottla.config.loading import given_settings

    wins = dict(pair("--override", text) for text in overrides)
    return BrokerConfig(given_settings(file, wins), allow_insecure=True)


def pair(option: str, text: str) -> tuple[str, str]:
    """Name and value of an option's NAME=VALUE. Raises `click.UsageError`."""
    name, has_value, value = text.partition("=")
    if not has_value or not name.strip():
        raise click.UsageError(f"{option} takes NAME=VALUE, not {text!r}")
    return name.strip(), value.strip()
