"""Programs of the system that tests, demo and benchmarks need: found, installed where that is allowed, or asked for.

`python -m tests.support.requirements java javac gcc` checks before a make target
starts its work, and ends with 1 if something is missing. With `--install` it first installs what is missing, and ends
with 0 outside CI: pytest leaves out the tests that need the rest (`tests/support/left_out.py`). The standard library
is all that it imports.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

_JAVA_NEEDED: Final = 17
_JAVA: Final = f"Java {_JAVA_NEEDED} or newer"
_PACKAGES: Final = {
    "java": (_JAVA, "default-jre-headless"),
    "javac": ("javac, which compiles the Java programs among the tests,", "default-jdk-headless"),
    "gcc": ("gcc, which compiles what is in C under a sanitizer,", "gcc libc6-dev"),
    "Python.h": ("Python.h, with which gcc compiles what is in C,", "python3-dev"),
    "mvn": ("Maven, which fetches Apache Kafka,", "maven"),
    "kcat": ("kcat, one of the clients under test,", "kcat"),
    "postgres": ("PostgreSQL, one of the databases under test,", "postgresql"),
    "mariadbd": ("MariaDB, one of the databases under test,", "mariadb-server"),
    "chromium": ("Chromium, in which the console is tried,", "chromium fonts-dejavu-core"),
    "promtool": ("Prometheus' rule tester, which tries every alert rule,", "prometheus"),
    "prometheus": ("Prometheus, which loads the alert rules under test,", "prometheus"),
    "krb5kdc": ("krb5kdc, a key distribution centre of Kerberos,", "krb5-kdc krb5-admin-server"),
    "kadmin.local": ("kadmin.local, which makes its principals,", "krb5-admin-server"),
    "kdb5_util": ("kdb5_util, which makes its database,", "krb5-kdc"),
    "kinit": ("kinit, which gets tickets of Kerberos,", "krb5-user libsasl2-modules-gssapi-mit"),
    "mariadb-install-db": ("mariadb-install-db, which comes with MariaDB,", "mariadb-server"),
}
"""What a program is, and the Debian packages that bring it. The one list of them."""
_FOR_ROOT: Final = ("mariadbd", "krb5kdc", "kadmin.local", "kdb5_util")
"""Debian keeps them where root alone looks."""


class MissingProgramError(RuntimeError):
    """A program of the system is absent or too old; the message names the Debian packages to install."""

    def __init__(self, sentence: str, packages: str) -> None:
        super().__init__(f"{sentence} (Debian: apt-get install {packages}).")
        self.packages = tuple(packages.split())


def java_program() -> str:
    """Path of a `java` of version 17 or newer: from JAVA_HOME, else from PATH.

    Raises:
        MissingProgramError: none found, or too old.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    found = next((path for name in [*candidates, "java"] if (path := shutil.which(name))), None)
    if found is None:
        raise MissingProgramError(f"{_JAVA} is needed and no `java` was found", _PACKAGES["java"][1])
    report = subprocess.run([found, "-version"], capture_output=True, text=True, check=True).stderr
    match = re.search(r'version "(\d+)', report)
    if match is None or int(match[1]) < _JAVA_NEEDED:
        version = report.splitlines()[0] if report else "an unknown version"
        raise MissingProgramError(f"{_JAVA} is needed, and {found} is {version}", "openjdk-17-jre-headless")
    return found


def require(program: str) -> str:
    """Path of `program` (a key of `_PACKAGES`).

    Raises:
        MissingProgramError: absent, or too old.
    """
    if program == "java":
        return java_program()
    found = _found(program)
    if found is None:
        what, packages = _PACKAGES[program]
        raise MissingProgramError(f"{what} is needed and not installed", packages)
    return found


def _found(program: str) -> str | None:
    """Path of `program`, on PATH or where Debian keeps it."""
    if program == "Python.h":
        header = Path(sysconfig.get_path("include")) / program
        return str(header) if header.exists() else None
    home = os.environ.get("JAVA_HOME") if program == "javac" else None
    found = (shutil.which(str(Path(home) / "bin" / program)) if home else None) or shutil.which(program)
    if found is None and program == "postgres":  # Debian keeps servers of several versions off PATH
        found = next((str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))), None)
    if found is None and program in _FOR_ROOT:
        found = shutil.which(program, path="/usr/sbin")
    return found


def missing(programs: Iterable[str]) -> list[MissingProgramError]:
    """One error for each of `programs` that is absent or too old."""
    errors = []
    for program in programs:
        try:
            require(program)
        except MissingProgramError as error:
            errors.append(error)
    return errors


def packages_of(errors: Iterable[MissingProgramError]) -> list[str]:
    """The Debian packages that bring what is missing, each once."""
    return list(dict.fromkeys(package for error in errors for package in error.packages))


def install_command(packages: Sequence[str]) -> str:
    """The command that a person gives to install `packages`."""
    return f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install -y {' '.join(sorted(packages))}"


def install(packages: Sequence[str]) -> None:
    """Install Debian packages, if this user may: as root, or by a sudo that asks for no password.

    What apt-get says of a failure is printed.
    """
    apt = shutil.which("apt-get")
    as_root = _words_to_become_root()
    if apt is None or as_root is None:
        return
    command = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", apt, "-qq", "-y"]
    print(f"Installing by apt-get: {' '.join(packages)}", flush=True)
    subprocess.run([*command, "update"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    install_all = [*command, "install", "--no-install-recommends"]
    if _succeeds([*install_all, *packages]) or len(packages) == 1:
        return
    for package in packages:  # one that this release of Debian lacks keeps none of the others away
        _succeeds([*install_all, package])


def _words_to_become_root() -> list[str] | None:
    """The words before a command that run it as root; None if this user may not."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    return [sudo, "-n"] if sudo and _succeeds([sudo, "-n", "true"], stderr=subprocess.DEVNULL) else None


def _succeeds(command: Sequence[str], stderr: int | None = None) -> bool:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, check=False)
    return done.returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 if a target cannot do its work with what is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.requirements", description=__doc__)
    parser.add_argument("--install", action="store_true", help="install what is missing, where this user may")
    parser.add_argument("programs", nargs="+", choices=sorted(_PACKAGES))
    options = parser.parse_args(arguments)
    lacks = missing(options.programs)
    if lacks and options.install:
        install(packages_of(lacks))
        lacks = missing(options.programs)
    for error in lacks:
        print(error, file=sys.stderr)
    if lacks and options.install and not os.environ.get("CI"):
        print(f"Tests that need them are left out. To run all: {install_command(packages_of(lacks))}", file=sys.stderr)
        return 0
    return 1 if lacks else 0


if __name__ == "__main__":
    sys.exit(main())
