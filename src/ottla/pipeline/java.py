"""The Java that Spark runs on: looked for, never fetched."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.pipeline.errors import PipelineError

OLDEST: Final = 17
"""The oldest feature release that Spark 4 runs on."""

_HOW: Final = (
    "Install one (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk) or set JAVA_HOME to it."
)


class JavaNotFoundError(PipelineError):
    """There is no Java, or none that is new enough; the message asks for one."""


@dataclass(frozen=True, slots=True)
class Java:
    """An installation of Java: its directory, its major version, and the build as it names itself."""

    home: Path
    version: int
    build: str = ""


def find_java() -> Java:
    """The Java of JAVA_HOME, else the one on PATH.

    Raises JavaNotFoundError if there is none or it is older than `OLDEST`.
    """
    ask = f"Spark runs on Java {OLDEST} or newer"
    given = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(given) / "bin")) if given else shutil.which("java")
    if program is None:
        place = (
            f"JAVA_HOME is {given}, but there is no bin/java in it" if given else "there is none on this machine's PATH"
        )
        raise JavaNotFoundError(f"{ask}; {place}. {_HOW}")
    properties = subprocess.run(
        [program, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=False
    ).stderr
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", properties, re.MULTILINE)
    if version is None:
        raise JavaNotFoundError(f"{ask}; {program} reports no version. {_HOW}")
    if int(version[1]) < OLDEST:
        raise JavaNotFoundError(f"{ask}; {program} is Java {version[1]}. {_HOW}")
    # /usr/bin/java on macOS is a stub that asks elsewhere: java itself knows where it lives
    location = re.search(r"^\s*java\.home = (.+)$", properties, re.MULTILINE)
    build = re.search(r"^\s*java\.vm\.version = (.+)$", properties, re.MULTILINE)
    home = Path(location[1].strip()) if location else Path(program).resolve().parents[1]
    return Java(home, int(version[1]), build[1].strip() if build else "")
