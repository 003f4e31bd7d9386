"""`ottla connect serve`: a worker of connectors, until Ctrl-C."""

import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.brokers.properties import read_properties
from ottla.cli.brokers.worker_access import access_options
from ottla.cli.connect.files import named_configs, text_of
from ottla.cli.terminal import interruption
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import note
from ottla.client.properties import PropertiesProblem, translated
from ottla.collector import collect_quickly
from ottla.connect.rest.client import Access

_CLIENT: Final = ("sasl.", "ssl.")
_TO_BROKERS: Final = ("security.protocol", *_CLIENT)
_OWN_TLS: Final = "listeners.https."
_SHARED_TLS: Final = (
    "ssl.keystore.",
    "ssl.key.password",
    "ssl.truststore.",
    "ssl.client.auth",
    "ssl.enabled.protocols",
)
_OBJECTS_OF_RECORDS: Final = 100_000
"""A batch of records makes some 50,000 objects, and reference counts free them all."""
_STOP_MARGIN_S: Final = 20.0
"""How long a worker may take to stop, beyond the grace that its tasks get."""
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("files", metavar="[CONNECTOR]...", nargs=-1, type=_FILE)
@click.option(
    "--config",
    metavar="FILE",
    type=_FILE,
    help="The worker's properties, as of Kafka Connect.",
)
@click.option("--override", "-o", metavar="KEY=VALUE", multiple=True, help="One of them; wins. May be repeated.")
@access_options
@connection_options
def serve(
    connection: Connection, access: Access, files: tuple[Path, ...], config: Path | None, override: tuple[str, ...]
) -> None:
    """Run a worker until Ctrl-C, and with it the CONNECTORs of these files.

    Workers with one group.id share connectors, and take over from one that dies. State is in three topics; with
    offset.storage.file.filename it is in that file, and the worker is alone. Modules in the directories of
    plugin.path may be connectors. Where the worker asks for a login (rest.users.file), --user and the others are for
    these files.
    """
    from ottla.connect.errors import ConnectError
    from ottla.connect.rest.server import Server
    from ottla.connect.runtime.connector_log import CleanFormatter
    from ottla.connect.runtime.secrets import Secrets
    from ottla.connect.runtime.worker_settings import unknown_worker_settings

    settings = {"bootstrap.servers": connection.bootstrap, **connection.properties}
    try:
        given = {} if config is None else read_properties(text_of(config))
        settings.update(worker_properties({**given, **read_properties("\n".join(override))}))
    except PropertiesProblem as problem:
        raise click.UsageError(str(problem)) from None
    for sentence in unknown_worker_settings(settings):
        note(sentence)
    wanted = named_configs(files)
    try:
        resolved = Secrets().resolve(settings)
        connection.bootstrap = resolved["bootstrap.servers"]
        connection.properties |= {name: value for name, value in resolved.items() if name.startswith(_TO_BROKERS)}
        connection.reach()
        server = Server(settings)
        sys.path.extend(str(each) for each in server.worker.environment.permissions.plugin_path)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(CleanFormatter("%(asctime)s %(levelname)s %(message)s", server.worker.environment.secrets))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        server.start()
    except ConnectError as problem:
        raise CommandFailed(str(problem)) from None
    collect_quickly(first=_OBJECTS_OF_RECORDS)
    try:
        note(f"ready at {server.url}")
        if wanted:
            from ottla.cli.connect.apply import put
            from ottla.cli.connect.client import Rest

            for name, each in wanted.items():
                put(Rest(server.url, access), name, each)
        interruption.wait()
    finally:
        grace_s = server.worker.environment.settings.task_shutdown_graceful_timeout_ms / 1000
        watchdog = threading.Timer(grace_s + _STOP_MARGIN_S, _end_at_once, [grace_s + _STOP_MARGIN_S])
        watchdog.daemon = True
        watchdog.start()
        server.stop()
        watchdog.cancel()


def _end_at_once(after_s: float) -> None:
    """End the process, though its clients wait for brokers that do not answer: what SIGKILL may do, this may too."""
    note(
        f"the worker has not stopped within {after_s:.0f} s, and ends as if it had been killed: its tasks go on where "
        "their committed positions are. What it waits for:"
    )
    faulthandler.dump_traceback(sys.stderr)
    os._exit(1)


def worker_properties(read: Mapping[str, str]) -> dict[str, str]:
    """The settings of a worker, those of its clients as the client library wants them. Raises PropertiesProblem."""
    if not any(name.startswith(_OWN_TLS) for name in read):  # then the REST API has those of the clients, as in Kafka
        shared = {f"{_OWN_TLS}{name}": value for name, value in read.items() if name.startswith(_SHARED_TLS)}
        read = {**read, **shared}
    clients = {name: value for name, value in read.items() if name.startswith(_CLIENT)}
    return {name: value for name, value in read.items() if name not in clients} | translated(clients)
