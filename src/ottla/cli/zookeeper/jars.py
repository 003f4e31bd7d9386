"""Where the jars of a ZooKeeper server come from: an installation, or the Maven artifact, fetched once.

In this order: the directory that `--home` or ZOOKEEPER_HOME names (ZooKeeper's own distribution, or Kafka's up to 3.9),
the package of Debian and Ubuntu, `~/.cache/ottla`. What is not there yet is fetched from Maven Central, or from the
mirror that OTTLA_MAVEN_REPOSITORY names; Maven itself is not needed.
"""

import hashlib
import os
import shutil
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from ottla.cli.terminal.exits import CommandFailed

VERSION: Final = "3.8.4"
"""The one that Kafka 3.9 comes with."""
REPOSITORY: Final = "https://repo1.maven.org/maven2"
DEBIAN_JAR: Final = Path("/usr/share/java/zookeeper.jar")
FETCH_TIMEOUT_S: Final = 30


class Jar(NamedTuple):
    """One artifact: its path in a repository, and the SHA-256 of its bytes."""

    path: str
    sha256: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


JARS: Final = (
    Jar(
        f"org/apache/zookeeper/zookeeper/{VERSION}/zookeeper-{VERSION}.jar",
        "2d77b152039e7f85dc5438a9304febff86a2f3e55c88976a8be309af39028e97",
    ),
    Jar(
        f"org/apache/zookeeper/zookeeper-jute/{VERSION}/zookeeper-jute-{VERSION}.jar",
        "93e854b55d731e745bafec187e2e7bf3389fd2a88e2fc8d1a3c1b9110284b284",
    ),
    Jar(
        "io/dropwizard/metrics/metrics-core/4.1.12.1/metrics-core-4.1.12.1.jar",
        "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9",
    ),
    Jar(
        "org/xerial/snappy/snappy-java/1.1.10.5/snappy-java-1.1.10.5.jar",
        "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b",
    ),
    Jar(
        "org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar",
        "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0",
    ),
    Jar(
        "org/slf4j/slf4j-reload4j/1.7.36/slf4j-reload4j-1.7.36.jar",
        "ae6fdd5c9547896114d5ec7fa7503733b7d2890573d3886fb548b3119c4d3f67",
    ),
    Jar(
        "ch/qos/reload4j/reload4j/1.2.19/reload4j-1.2.19.jar",
        "fa07aa7adedf2a65eb09007443bb60b51c725b1b5b88e481e00c529ff2d3b5b5",
    ),
)
"""What a server by itself needs: the artifact has dependencies for TLS and clients besides."""


def class_path(home: Path | None, say: Callable[[str], None]) -> str:
    """The class path of a server; calls `say` before it downloads anything. Raises `CommandFailed`."""
    named = home or (Path(os.environ["ZOOKEEPER_HOME"]) if os.environ.get("ZOOKEEPER_HOME") else None)
    if named is not None:
        return _installed(named)
    if DEBIAN_JAR.exists():
        return str(DEBIAN_JAR)
    kept = cache_directory()
    if not all((kept / jar.name).exists() for jar in JARS):
        _fetch(kept, say)
    return f"{kept}/*"


def cache_directory() -> Path:
    """Where fetched jars are kept: below XDG_CACHE_HOME, or `~/.cache`."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "ottla" / f"zookeeper-{VERSION}"


def _installed(home: Path) -> str:
    for directory in (home / "lib", home / "libs", home):
        if any(directory.glob("zookeeper-[0-9]*.jar")):
            return f"{directory}/*"
    raise CommandFailed(f"{home} is no installation of ZooKeeper: there is no zookeeper-*.jar in it, nor in its lib")


def _fetch(kept: Path, say: Callable[[str], None]) -> None:
    """Fetch all jars, or leave things as they were."""
    repository = (os.environ.get("OTTLA_MAVEN_REPOSITORY") or REPOSITORY).rstrip("/")
    say(f"fetching ZooKeeper {VERSION} (4 MB, once) from {repository}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="fetching-") as fetched:
        for jar in JARS:
            url = f"{repository}/{jar.path}"
            try:
                with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as response:
                    content = response.read()
            except (OSError, ValueError) as failure:  # ValueError: what was given is no URL
                reason = getattr(failure, "reason", None) or failure
                raise CommandFailed(
                    f"{url} cannot be fetched: {reason}. Name an installation with --home, install a package "
                    "(Debian: apt-get install zookeeper), or name a mirror of Maven Central with OTTLA_MAVEN_REPOSITORY"
                ) from None
            if hashlib.sha256(content).hexdigest() != jar.sha256:
                raise CommandFailed(f"{url} is not what it should be: its SHA-256 is not {jar.sha256}")
            (Path(fetched) / jar.name).write_bytes(content)
        shutil.copytree(fetched, kept, dirs_exist_ok=True)
