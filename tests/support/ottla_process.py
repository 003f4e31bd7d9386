"""`ottla serve` as a child process, the way an operator runs it."""

import sys
from pathlib import Path
from typing import ClassVar

from tests.support.broker_process import BrokerProcess


class OttlaProcess(BrokerProcess):
    """An Ottla broker of its own process; see `BrokerProcess` for what can be done with it."""

    name = "ottla"
    ready_timeout_s = 30.0
    poll_interval_s = 0.005
    defaults: ClassVar[dict[str, str]] = {"group.initial.rebalance.delay.ms": "0"}

    def command(self) -> list[str]:
        """`ottla serve` with everything as overrides.

        Insecure, as genuine Kafka is without an authorizer: alone it lets clients send what brokers send, too.
        """
        script = Path(sys.executable).with_name("ottla")
        program = [str(script)] if script.exists() else [sys.executable, "-m", "ottla.cli.main"]
        settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.log_dir),
            **self.defaults,
            **self.properties,
        }
        overrides = [part for key, value in settings.items() for part in ("--override", f"{key}={value}")]
        return [*program, "serve", "--allow-insecure", *overrides]
