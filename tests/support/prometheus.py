"""A real Prometheus that scrapes endpoints and evaluates alert rules, as a child process."""

import json
import re
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.eventually import eventually
from tests.support.probe import free_port
from tests.support.requirements import require

CONFIG = """\
global: {{ scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms }}
rule_files: [ {rules} ]
scrape_configs:
  - job_name: ottla
    static_configs: [ {{ targets: {targets} }} ]
"""


class Prometheus:
    """Scrapes and evaluates twice a second; a context manager."""

    def __init__(self, targets: Sequence[str], rules: str) -> None:
        """`rules`: the text of a file of alert rules, whose minutes become seconds."""
        self._directory = tempfile.TemporaryDirectory()
        folder = Path(self._directory.name)
        (folder / "rules.yml").write_text(re.sub(r"\b\d+[mhd]\b", "3s", rules), encoding="utf-8")
        config = CONFIG.format(rules=folder / "rules.yml", targets=json.dumps(list(targets)))
        (folder / "prometheus.yml").write_text(config, encoding="utf-8")
        self._address = f"127.0.0.1:{free_port()}"
        self._process = subprocess.Popen(
            [
                require("prometheus"),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={self._address}",
                "--log.level=error",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        eventually(self._is_ready)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._directory.cleanup()

    def _is_ready(self) -> bool:
        try:
            return self._get("/-/ready").startswith("Prometheus")
        except OSError:
            return False

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self._address}{path}", timeout=10) as answer:
            body: bytes = answer.read()
        return body.decode()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression gives now. Raises `urllib.error.HTTPError` if it is none."""
        answer = json.loads(self._get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}"))
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def firing(self) -> dict[str, str]:
        """The alerts that fire, with their sentences."""
        alerts = json.loads(self._get("/api/v1/alerts"))["data"]["alerts"]
        return {
            alert["labels"]["alertname"]: alert["annotations"]["summary"]
            for alert in alerts
            if alert["state"] == "firing"
        }
