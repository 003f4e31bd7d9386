"""A Kerberos realm of a test: a genuine key distribution centre (MIT krb5) as a child process, with its own files."""

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.eventually import eventually
from tests.support.probe import free_port
from tests.support.requirements import require

NAME: Final = "EXAMPLE.TEST"
_CONF: Final = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    qualify_shortname = ""
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
[domain_realm]
    localhost = {realm}
"""
_KDC: Final = """\
[logging]
    kdc = FILE:{directory}/kdc.log
[realms]
    {realm} = {{
        database_name = {directory}/principal
        key_stash_file = {directory}/stash
        acl_file = {directory}/acl
        kdc_listen = 127.0.0.1:{port}
        kdc_tcp_listen = 127.0.0.1:{port}
        max_life = 10h
    }}
"""


class Realm:
    """Inside `with`, it gives tickets. `environment` is for the processes that take part."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.conf = directory / "krb5.conf"
        kdc_conf = directory / "kdc.conf"
        self.environment = {
            "KRB5_CONFIG": str(self.conf),
            "KRB5_KDC_PROFILE": str(kdc_conf),
            "KRB5RCACHEDIR": str(directory),
        }
        self.conf.write_text(_CONF.format(realm=NAME, port=self._port))
        kdc_conf.write_text(_KDC.format(realm=NAME, port=self._port, directory=directory))

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-r", NAME, "-P", "master")
        with (self._directory / "kdc.output").open("wb") as log:
            self._process = subprocess.Popen(
                [require("krb5kdc"), "-n", "-r", NAME, "-P", str(self._directory / "kdc.pid")],
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.add("probe")
        eventually(lambda: self.kinit("probe", self._directory / "probe") is not None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait()

    def add(self, principal: str, **settings: str) -> Path:
        """A principal with a new key; its key table. `settings` are those of `kadmin.local addprinc`, as `maxlife`."""
        table = self.table_of(principal)
        words = " ".join(f'-{name} "{value}"' for name, value in settings.items())
        self._run("kadmin.local", "-r", NAME, "-q", f"addprinc -randkey {words} {principal}")
        self.export_key(principal)
        return table

    def export_key(self, principal: str) -> None:
        """Write the present key of a principal to its key table, beside earlier ones."""
        self._run("kadmin.local", "-r", NAME, "-q", f"ktadd -norandkey -k {self.table_of(principal)} {principal}")

    def replace_key(self, principal: str) -> None:
        """Give a principal another key, which its key table does not have."""
        self._run("kadmin.local", "-r", NAME, "-q", f"cpw -randkey {principal}")

    def table_of(self, principal: str) -> Path:
        """Where the key table of a principal is."""
        return self._directory / f"{principal.replace('/', '-')}.keytab"

    def kinit(self, principal: str, cache: Path, *words: str) -> Path | None:
        """A file with a ticket of the principal; None if there is none to be had."""
        command = ["kinit", "-k", "-t", str(self.table_of(principal)), "-c", str(cache), *words, principal]
        done = subprocess.run(command, env=os.environ | self.environment, capture_output=True, check=False)
        return cache if done.returncode == 0 else None

    def tickets_given(self, principal: str) -> int:
        """How many tickets the principal has got for itself."""
        text = (self._directory / "kdc.log").read_text(errors="replace")
        return sum("ISSUE" in line and f"{principal}@{NAME} for" in line for line in text.splitlines())

    def _run(self, program: str, *words: str) -> None:
        command = [require(program), *words]
        done = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"


def key_line(table: Path, principal: str, *options: str) -> str:
    """A JAAS line with a key table."""
    words = ("useKeyTab=true", "storeKey=true", f'keyTab="{table}"', f'principal="{principal}@{NAME}"', *options)
    return f"com.sun.security.auth.module.Krb5LoginModule required {' '.join(words)};"
