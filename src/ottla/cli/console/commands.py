"""`ottla console`: web pages that show a cluster, and change what their users may change."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.brokers.properties import read_properties
from ottla.cli.brokers.worker_access import access_options
from ottla.cli.console.openid import openid_options, openid_settings
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.metrics import metrics_option
from ottla.cli.terminal.output import note
from ottla.client.properties import PropertiesProblem
from ottla.errors import InvalidConfig, sentence

if TYPE_CHECKING:
    from ottla.connect.rest.client import Access
    from ottla.console.access.access import Settings
    from ottla.console.values import Decode

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_CREDENTIALS: Final = ("sasl.", "ssl.key", "ssl.certificate", "ssl.keystore")


@click.command()
@click.option("--host", default="127.0.0.1", help="The address to listen at. [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT", default=8080, help="0 takes a free one. [default: 8080]"
)
@click.option("--read-only", is_flag=True, help="Change nothing.")
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Allow changes also where they are not by default: when others than this machine reach the console, or when "
    "everybody uses it with the user of its own properties.",
)
@click.option("--login", is_flag=True, help="Ask for a name and password of the brokers (SASL).")
@openid_options
@click.option(
    "--role",
    "roles",
    metavar="NAME=ROLE",
    multiple=True,
    help="What a user may do: viewer, editor, admin or none. * is everybody else; group:NAME is a group of "
    "--oidc-roles-claim. [default: *=viewer]",
)
@click.option("--roles", "roles_file", metavar="FILE", type=_FILE, help="A file of lines NAME=ROLE.")
@click.option(
    "--mask",
    "masks",
    metavar="FIELD,...",
    multiple=True,
    help="Fields that only administrators see, such as value.card or headers.token.",
)
@click.option(
    "--registry",
    metavar="URL",
    help="The schema registry that has the schemas of Avro and Protobuf records; several addresses of one with commas.",
)
@click.option(
    "--registry-config",
    metavar="FILE",
    type=_FILE,
    help="A file of the registry client's properties, such as basic.auth.user.info or ssl.ca.location.",
)
@click.option("--audit-log", metavar="FILE", help="Where logins and actions are noted. [default: standard error]")
@click.option("--tls-certificate", metavar="FILE", type=_FILE, help="Serve HTTPS with this certificate (PEM).")
@click.option("--tls-key", metavar="FILE", type=_FILE, help="Its private key (PEM).")
@click.option("--allow-plain-http", is_flag=True, help="Send passwords over the network without TLS.")
@click.option(
    "--public-url", metavar="URL", help="Where browsers reach the console, such as through a proxy on this machine."
)
@metrics_option
@click.option("--while-stdin-open", is_flag=True, hidden=True, help="End with the process that has started it.")
@click.option(
    "--connect",
    "workers",
    metavar="URL",
    multiple=True,
    help="Show the connectors of this Connect cluster, Ottla's or Kafka's. May be repeated.",
)
@functools.partial(access_options, prefix="connect")
@click.option(
    "--pipelines",
    "home",
    metavar="DIR",
    help="Show the runs of jobs in this home. [default without --login: OTTLA_HOME, or ~/.ottla]",
)
@connection_options
def command(
    connection: Connection,
    access: "Access",
    /,
    host: str,
    port: int,
    tls_certificate: Path | None,
    tls_key: Path | None,
    allow_plain_http: bool,
    while_stdin_open: bool,
    metrics_listeners: str,
    **given: Any,
) -> int:
    """Serve a console for the browser: what is healthy, topics, records and groups, as they change.

    It works with any Kafka cluster. By default it listens on this machine only; elsewhere it asks for a login and TLS,
    and only reads.
    """
    from ottla.console import server
    from ottla.console.access.masks import MaskProblem
    from ottla.console.access.roles import RoleProblem

    if (tls_certificate is None) != (tls_key is None):
        raise click.UsageError("--tls-certificate and --tls-key go together")
    encryption = None
    if tls_certificate is not None and tls_key is not None:
        encryption = server.Encryption(tls_certificate, tls_key)
    try:
        server.check_exposure(
            host,
            port,
            has_login=given["login"],
            is_encrypted=encryption is not None,
            allows_plain_http=allow_plain_http,
        )
        settings = _settings(connection, access, host, given, is_encrypted=encryption is not None)
        connection.reach(logs_in=not settings.asks_login)
        bound = server.listening(host, port)
    except (RoleProblem, MaskProblem) as problem:
        raise click.UsageError(str(problem)) from None
    except (server.Exposed, OSError) as problem:
        raise CommandFailed(sentence(problem)) from None
    try:
        server.run(
            settings,
            bound,
            lambda url: note(f"The console is at {url} (Ctrl-C ends it)."),
            encryption,
            while_stdin_open=while_stdin_open,
            metrics_listeners=metrics_listeners,
        )
    except InvalidConfig as problem:
        raise CommandFailed(str(problem)) from None
    return 0


def _settings(
    connection: Connection, access: "Access", host: str, given: Mapping[str, Any], *, is_encrypted: bool
) -> "Settings":
    """What the options ask for. Raises RoleProblem, MaskProblem, OSError, click.UsageError."""
    from ottla.console.access.access import Settings
    from ottla.console.access.audit import file_trail, stderr_trail
    from ottla.console.access.logins import properties_problem
    from ottla.console.access.masks import parse_masks
    from ottla.console.access.roles import parse_roles
    from ottla.console.connectors import NO_LOGIN, WorkerAddress
    from ottla.console.server import is_reached_here_only
    from ottla.pipeline.run_store import find_home

    properties = dict(connection.properties)
    bootstrap = properties.pop("bootstrap.servers", connection.bootstrap)
    asks_login = given["login"]
    names, scheme = _public(given["public_url"])
    openid = openid_settings(given, host, is_local=is_reached_here_only(host))
    if openid is not None and not asks_login:
        raise click.UsageError("--oidc-issuer chooses how users log in, so that it needs --login")
    if asks_login and (problem := properties_problem(properties, by_token=openid is not None)) is not None:
        raise click.UsageError(f"--login: {problem}")
    roles = [*given["roles"], *(given["roles_file"].read_text("utf-8").splitlines() if given["roles_file"] else ())]
    if roles and not asks_login:
        raise click.UsageError("roles belong to names, so that they need --login")
    assigned = parse_roles(roles)
    if assigned.has_groups and (openid is None or openid.groups_claim is None):
        raise click.UsageError("groups have roles by --oidc-issuer and --oidc-roles-claim alone")
    if given["read_only"] and given["allow_changes"]:
        raise click.UsageError("--read-only and --allow-changes exclude each other")
    if given["public_url"] is not None and not asks_login:
        raise click.UsageError("--public-url leads others here, so that it needs --login")
    local = is_reached_here_only(host) and given["public_url"] is None
    if any("@" in url for url in given["workers"]):
        raise click.UsageError("--connect: pages show the address, so give the login by --connect-user, not in it")
    workers = tuple(WorkerAddress(url, access) for url in given["workers"])
    proves_itself = any(name.startswith(_CREDENTIALS) for name in properties) or bool(workers and access != NO_LOGIN)
    lends = not asks_login and proves_itself
    return Settings(
        bootstrap,
        properties,
        asks_login=asks_login,
        changes=not given["read_only"] and (given["allow_changes"] or (local and not lends)),
        openid=openid,
        roles=assigned,
        masks=parse_masks(given["masks"]),
        decode=_decode(given.get("registry"), given.get("registry_config")),
        names=frozenset((*names, host.lower())),
        scheme=scheme or ("https" if is_encrypted else "http"),
        is_loopback=local,
        has_proxy=given["public_url"] is not None,
        trail=stderr_trail() if given["audit_log"] is None else file_trail(given["audit_log"]),
        workers=workers,
        # others on this machine open the console, too: the jobs of its user are theirs to change only if that is meant
        home=find_home(given["home"]) if given["home"] is not None or not asks_login else None,
        promotes=given["home"] is not None or asks_login,
    )


def _decode(url: str | None, config: Path | None) -> "Decode":
    """What reads values by their schema. Raises click.UsageError."""
    from ottla.console.schemas import schemas_at, unconfigured

    if url is None:
        if config is not None:
            raise click.UsageError("--registry-config belongs to --registry")
        return unconfigured
    try:
        return schemas_at(url, {} if config is None else read_properties(config.read_text("utf-8"))).decode
    except (ValueError, PropertiesProblem) as problem:
        raise click.UsageError(f"--registry: {problem}") from None


def _public(url: str | None) -> tuple[list[str], str]:
    """The host and scheme of `--public-url`. Raises click.UsageError."""
    if url is None:
        return [], ""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise click.UsageError(f"--public-url is https://HOST or https://HOST:PORT, not {url!r}")
    return [parts.hostname], parts.scheme
