"""The options of logins by OpenID Connect."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ottla.errors import InvalidConfig

if TYPE_CHECKING:
    from ottla.console.access.openid_provider import OpenIdSettings

F = TypeVar("F", bound=Callable[..., Any])

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS: Final = (
    click.option(
        "--oidc-issuer", metavar="URL", help="Let users log in by this OpenID provider, as its documents name it."
    ),
    click.option("--oidc-client-id", metavar="ID", help="The console's name at the provider."),
    click.option(
        "--oidc-client-secret-file",
        metavar="FILE",
        type=_FILE,
        help="A file with the console's secret at the provider.",
    ),
    click.option(
        "--oidc-user-claim",
        type=click.Choice(["preferred_username", "sub", "email"]),
        help="The claim of the id token with the user's name. [default: preferred_username]",
    ),
    click.option(
        "--oidc-roles-claim", metavar="CLAIM", help="The claim with the user's groups, which --role group:NAME names."
    ),
    click.option(
        "--oidc-scope", metavar="SCOPES", help="What is asked of the provider. [default: openid profile email]"
    ),
)
_DEPENDENT: Final = ("client_id", "client_secret_file", "user_claim", "roles_claim", "scope")


def openid_options(function: F) -> F:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def openid_settings(given: Mapping[str, Any], host: str, *, is_local: bool) -> "OpenIdSettings | None":
    """What the options ask for; None: no provider. `is_local`: only this machine reaches the console at `host`.

    Raises click.UsageError, OSError.
    """
    issuer = given.get("oidc_issuer")
    own = {name: given[f"oidc_{name}"] for name in _DEPENDENT if given.get(f"oidc_{name}") is not None}
    if issuer is None:
        if own:
            raise click.UsageError(f"--oidc-{next(iter(own)).replace('_', '-')} belongs to --oidc-issuer")
        return None
    from ottla.console.access.openid_provider import OpenIdSettings, check_issuer

    try:
        check_issuer("--oidc-issuer", issuer)
    except InvalidConfig as problem:
        raise click.UsageError(str(problem)) from None
    if "client_id" not in own:
        raise click.UsageError("--oidc-issuer needs --oidc-client-id, by which the provider knows the console")
    if not is_local and given["public_url"] is None:
        raise click.UsageError("--oidc-issuer needs --public-url, to which the provider leads back")
    scope = own.get("scope", "openid profile email")
    if "openid" not in scope.split():
        raise click.UsageError("--oidc-scope needs openid, or the provider names no user")
    return OpenIdSettings(
        issuer,
        own["client_id"],
        _secret(own.get("client_secret_file")),
        own.get("user_claim", "preferred_username"),
        own.get("roles_claim"),
        scope,
        given["public_url"],
        host,
    )


def _secret(path: Path | None) -> str | None:
    """The secret in a file. Raises click.UsageError, OSError."""
    if path is None:
        return None
    try:
        secret = path.read_text("utf-8").strip()
    except UnicodeDecodeError:
        secret = ""
    if not secret or "\n" in secret:
        raise click.UsageError(f"--oidc-client-secret-file: {path} has to have one line, the secret")
    return secret
