"""Programs of the system that tests, demo and benchmarks need: found, or asked for in one sentence.

`python -m tests.support.requirements java javac gcc mvn kcat postgres mariadbd` checks before a make target starts its
work; it needs nothing but the standard library.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

_JAVA_NEEDED: Final = 17
_PACKAGES: Final = {
    "javac": ("javac, which compiles the Java programs among the tests,", "default-jdk-headless"),
    "gcc": ("gcc, which compiles what is in C under a sanitizer,", "gcc libc6-dev python3-dev"),
    "mvn": ("Maven, which fetches Apache Kafka,", "maven"),
    "kcat": ("kcat, one of the clients under test,", "kcat"),
    "postgres": ("PostgreSQL, one of the databases under test,", "postgresql"),
    "mariadbd": ("MariaDB, one of the databases under test,", "mariadb-server"),
    "mariadb-install-db": ("mariadb-install-db, which comes with MariaDB,", "mariadb-server"),
}


class MissingProgramError(RuntimeError):
    """A program of the system is absent or too old; the message names the Debian package to install."""


def java_program() -> str:
    """Path of a `java` of version 17 or newer: from JAVA_HOME, else from PATH.

    Raises:
        MissingProgramError: none found, or too old.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    found = next((path for name in [*candidates, "java"] if (path := shutil.which(name))), None)
    if found is None:
        raise MissingProgramError(
            f"Java {_JAVA_NEEDED} or newer is needed and no `java` was found "
            "(Debian: apt-get install default-jre-headless)."
        )
    report = subprocess.run([found, "-version"], capture_output=True, text=True, check=True).stderr
    match = re.search(r'version "(\d+)', report)
    if match is None or int(match[1]) < _JAVA_NEEDED:
        version = report.splitlines()[0] if report else "an unknown version"
        raise MissingProgramError(
            f"Java {_JAVA_NEEDED} or newer is needed, and {found} is {version} "
            "(Debian: apt-get install openjdk-17-jre-headless)."
        )
    return found


def require(program: str) -> str:
    """Path of `program` (java, javac, gcc, mvn, kcat, postgres, mariadbd, mariadb-install-db).

    Raises:
        MissingProgramError: absent, or too old.
    """
    if program == "java":
        return java_program()
    home = os.environ.get("JAVA_HOME") if program == "javac" else None
    found = (shutil.which(str(Path(home) / "bin" / program)) if home else None) or shutil.which(program)
    if found is None and program == "postgres":  # Debian keeps servers of several versions off PATH
        found = next((str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))), None)
    if found is None and program == "mariadbd":  # Debian keeps it where root alone looks
        found = shutil.which(program, path="/usr/sbin")
    if found is None:
        what, package = _PACKAGES[program]
        raise MissingProgramError(f"{what} is needed and not installed (Debian: apt-get install {package}).")
    return found


def missing(programs: list[str]) -> list[str]:
    """One sentence for each of `programs` that is absent or too old."""
    sentences = []
    for program in programs:
        try:
            require(program)
        except MissingProgramError as error:
            sentences.append(str(error))
    return sentences


if __name__ == "__main__":
    lacks = missing(sys.argv[1:])
    for sentence in lacks:
        print(sentence, file=sys.stderr)
    sys.exit(1 if lacks else 0)
