"""The option that asks a process for its metrics."""

from collections.abc import Callable
from typing import Any, Final

import click

metrics_option: Final[Callable[[Callable[..., Any]], Callable[..., Any]]] = click.option(
    "--metrics-listeners",
    metavar="URL",
    envvar="OTTLA_METRICS_LISTENERS",
    default="",
    help="Serve metrics and health at http://HOST:PORT; comma-separated. [env: OTTLA_METRICS_LISTENERS; default: none]",
)
