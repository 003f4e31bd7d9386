"""`ottla console` as a child process."""

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path


class Console:
    """`ottla console` as a child process."""

    def __init__(self, bootstrap: str, *options: str) -> None:
        ottla = Path(sys.executable).with_name("ottla")
        self._process = subprocess.Popen(
            [ottla, "console", "--port", "0", "--bootstrap", bootstrap, *options], stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        assert "http://" in line, line + self._process.stderr.read()
        self.url = line.split()[4].rstrip("/")

    def close(self) -> None:
        self._process.terminate()
        assert self._process.stderr is not None
        rest = self._process.stderr.read()
        self._process.stderr.close()
        assert (self._process.wait(20), rest) == (0, ""), rest[-3000:]

    def body(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=20) as answer:
            found: bytes = answer.read()
        return found

    def status(self, path: str, method: str = "GET", **headers: str) -> int:
        request = urllib.request.Request(self.url + path, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
