"""How this broker logs in to others.

What waits for a file, a provider or a key distribution centre does so in threads.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ottla.client.sansio.sasl import Mechanism
from ottla.client.security import mechanism_of
from ottla.config.logins import KerberosLoginSettings, Login, PasswordLogin

LOGIN_THREADS: Final = 2


class BrokerLogins:
    """Makes one authentication after the other, as the settings say. On the loop's thread."""

    def __init__(self, settings: Login) -> None:
        """Raises `InvalidConfig` if a library is missing."""
        self._new = _source(settings)
        self._threads = ThreadPoolExecutor(LOGIN_THREADS, thread_name_prefix="ottla login")

    async def __call__(self, host: str) -> Mechanism:
        """An authentication at a host. Raises OSError if there is nothing to log in with."""
        mechanism = self._new(host)
        prepare = getattr(mechanism, "prepare", None)
        if prepare is not None:
            await asyncio.get_running_loop().run_in_executor(self._threads, prepare)
        return mechanism

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _source(settings: Login) -> Callable[[str], Mechanism]:
    if isinstance(settings, PasswordLogin):
        make = mechanism_of(settings.mechanism, settings.user, settings.password)
        return lambda host: make()
    if isinstance(settings, KerberosLoginSettings):
        from ottla.security.gssapi import need_kerberos
        from ottla.security.kerberos import KerberosLogins

        need_kerberos()
        return KerberosLogins(settings.key, settings.service).to
    from ottla.security.bearer_login import BearerLogin, BearerTokens

    tokens = BearerTokens(settings)
    return lambda host: BearerLogin(tokens)
