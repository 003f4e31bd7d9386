"""Airflow runs and awaits jobs: an operator for `ottla pipeline run --once`, and a sensor for lag.

Both run the command `ottla`, so that the job's packages may be in an environment other than Airflow's. Needs the extra
`airflow`; Airflow 3.3 or newer.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

from airflow.sdk import BaseOperator, BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from ottla.processes import ottla_command

_USAGE: Final = 2
"""The exit code of a command line that is wrong, and stays so."""
_LOOK_EVERY_S: Final = 0.5
_STOPS_WITHIN_S: Final = 150.0
"""As TimeoutStopSec of deploy/ottla-job@.service: micro-batches, late rows, the end of Spark."""
_ANSWERS_WITHIN_S: Final = 120.0
_MEASURED_AFTER_S: Final = 5.0
"""A run asks for the ends of its topics every two seconds: figures this much later know records sent before."""
_FRESH_WITHIN_S: Final = 30.0
"""A flow reports every ten seconds at least."""
_FRESH_EVERY_S: Final = 2.0


class OttlaJobOperator(BaseOperator):
    """Runs a job once: processes the records that are there, and ends.

    The task fails with the sentence that the job fails with, and is not repeated if the command line is wrong. A task
    that is killed or times out interrupts the job as Ctrl-C does: the job ends after its micro-batches, also if Airflow
    no longer waits for that, and the next start goes on from there.

    Args:
        job: the path of the job file.
        name: the run's name, if not the job's.
        profile: the table of ottla.toml beside the job file with brokers, parameters and settings.
        parameters: parameters of the job. Other users of the machine can list them: give passwords by `env` and a
            profile.
        only: the flows to run; empty: all.
        excluded: flows to leave out.
        close_windows_until: a time, such as `{{ data_interval_end }}`; windows that end by then are closed.
        options: more options of `ottla pipeline run`, such as `("--master", "yarn")`.
        bootstrap: where the brokers are; None: as the profile, OTTLA_BOOTSTRAP or the job has it.
        home: the directory of runs and their checkpoints, which every worker reaches; None: OTTLA_HOME.
        env: variables that the job gets beside those of the worker.
        ottla: the path of an `ottla` in another environment; None: the one of this environment.
    """

    template_fields: Sequence[str] = (
        "job",
        "name",
        "profile",
        "parameters",
        "close_windows_until",
        "options",
        "bootstrap",
        "home",
        "env",
    )

    def __init__(
        self,
        *,
        job: str,
        name: str | None = None,
        profile: str | None = None,
        parameters: Mapping[str, str] | None = None,
        only: Sequence[str] = (),
        excluded: Sequence[str] = (),
        close_windows_until: str | None = None,
        options: Sequence[str] = (),
        bootstrap: str | None = None,
        home: str | None = None,
        env: Mapping[str, str] | None = None,
        ottla: str | None = None,
        **task: Any,
    ) -> None:
        super().__init__(**task)
        self.job = job
        self.name = name
        self.profile = profile
        self.parameters = parameters
        self.only = only
        self.excluded = excluded
        self.close_windows_until = close_windows_until
        self.options = options
        self.bootstrap = bootstrap
        self.home = home
        self.env = env
        self.ottla = ottla
        self._process: subprocess.Popen[bytes] | None = None

    def execute(self, context: Context) -> None:
        """Run the job to its end, with its output in the task's log.

        Raises AirflowException with the job's reason, AirflowFailException for a wrong command line.
        """
        command = _command(self.ottla, "pipeline", "run", *self._arguments())
        self.log.info("Running %s", command)
        # a file, since a job that outlives its task could not write to a pipe that nobody reads
        descriptor, path = tempfile.mkstemp(prefix="ottla-")
        with open(descriptor, "wb") as written, open(path, encoding="utf-8", errors="replace") as output:
            os.unlink(path)  # it ends with the last process that has it open
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                env={**os.environ, **(self.env or {})},
                start_new_session=True,  # Airflow kills the task's group, and Spark is not to die in a micro-batch
            )
            code = self._follow(self._process, output)
            output.seek(0)
            reason = last_words(output.read())
        if code:
            failure = AirflowFailException if code == _USAGE else AirflowException
            raise failure(f"{self.job} failed with exit code {code}: {reason}")

    def on_kill(self) -> None:
        """Interrupt the job, and wait until it has ended."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        self.log.info("Interrupting the job (process %d): it ends after its micro-batches", process.pid)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.log.warning("The job has not ended within %.0f s", _STOPS_WITHIN_S)

    def _arguments(self) -> list[str]:
        given = {"--name": self.name, "--profile": self.profile, "--home": self.home, "--bootstrap": self.bootstrap}
        arguments = ["--once"]
        for option, value in given.items():
            if value is not None:
                arguments += [option, value]
        for key, value in (self.parameters or {}).items():
            arguments += ["--param", f"{key}={value}"]
        for option, flows in (("--only", self.only), ("--except", self.excluded)):
            for flow in flows:
                arguments += [option, flow]
        if self.close_windows_until is not None:
            arguments += ["--close-windows", "--until", self.close_windows_until]
        return [*arguments, *self.options, "--", self.job]

    def _follow(self, process: "subprocess.Popen[bytes]", output: IO[str]) -> int:
        """Log what the process writes until it has ended; gives its exit code."""
        while True:
            code = process.poll()
            for line in output.read().splitlines():
                self.log.info("Output of the job: %s", line)
            if code is not None:
                return code
            time.sleep(_LOOK_EVERY_S)


class OttlaLagSensor(BaseSensorOperator):
    """Waits until a consumer group, or flows of a run, are at most `max_lag` records behind the ends of their topics.

    The task fails when the run or one of these flows has failed. It goes on waiting while the run is stopped, and while
    brokers do not answer the run.

    Args:
        run: the name of a run; needs its `home`.
        flows: flows of the run; empty: all that are not left out.
        group: a consumer group, in place of a run. Partitions count that have a committed offset or a member.
        max_lag: records, of all partitions of a flow or group together.
        bootstrap, home, env, ottla: as for `OttlaJobOperator`.
        options: more options of `ottla group describe`, such as `("--command-config", "client.properties")`.
    """

    template_fields: Sequence[str] = ("run", "flows", "group", "bootstrap", "home", "env", "options")

    def __init__(
        self,
        *,
        run: str | None = None,
        flows: Sequence[str] = (),
        group: str | None = None,
        max_lag: int = 0,
        bootstrap: str | None = None,
        home: str | None = None,
        env: Mapping[str, str] | None = None,
        ottla: str | None = None,
        options: Sequence[str] = (),
        **task: Any,
    ) -> None:
        super().__init__(**task)
        if (run is None) == (group is None):
            raise ValueError("give the sensor a run or a group: one of the two")
        self.run = run
        self.flows = flows
        self.group = group
        self.max_lag = max_lag
        self.bootstrap = bootstrap
        self.home = home
        self.env = env
        self.ottla = ottla
        self.options = options

    def poke(self, context: Context) -> bool:
        """Whether the lag is small enough. Raises AirflowException for what has failed, and for what does not exist."""
        lags = self._lag_of_group() if self.group is not None else self._lags_of_run()
        for what, lag in lags.items():
            self.log.info("Measured lag of %s: %s", what, "not known yet" if lag is None else f"{lag:,} records")
        return bool(lags) and all(lag is not None and lag <= self.max_lag for lag in lags.values())

    def _lag_of_group(self) -> dict[str, int | None]:
        (group,) = self._ask("group", "describe", self.group, bootstrap=self.bootstrap)
        return {f"group {self.group}": group["lag"] if group["partitions"] else None}

    def _lags_of_run(self) -> dict[str, int | None]:
        """The lag of each flow, measured after this began; empty while the run is stopped."""
        began_at = time.time()
        while True:
            status = self._ask("pipeline", "status", self.run, home=self.home)
            chosen = chosen_flows(status, self.flows)
            if status["state"] != "running":
                self.log.info("Waiting for the run %s to be started: it is %s", self.run, status["state"])
                return {}
            if status["error"] is not None:
                self.log.info("Waiting for the brokers of the run %s: %s", self.run, status["error"])
                return dict.fromkeys(chosen)
            lags = {name: lag_of_flow(flow, began_at + _MEASURED_AFTER_S) for name, flow in chosen.items()}
            if None not in lags.values() or time.time() > began_at + _FRESH_WITHIN_S:
                return lags
            time.sleep(_FRESH_EVERY_S)

    def _ask(self, *words: str | None, **options: str | None) -> Any:
        """The JSON that a command prints. Raises AirflowException with the sentence that it fails with."""
        given = [f"--{name}={value}" for name, value in options.items() if value is not None]
        command = _command(self.ottla, *filter(None, words), "--json", *given, *self.options)
        environment = {**os.environ, **(self.env or {})}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=environment, timeout=_ANSWERS_WITHIN_S
            )
        except subprocess.TimeoutExpired:
            raise AirflowException(f"{command} has not answered within {_ANSWERS_WITHIN_S:.0f} s") from None
        if done.returncode:
            failure = AirflowFailException if done.returncode == _USAGE else AirflowException
            raise failure(last_words(done.stderr))
        return json.loads(done.stdout)


def last_words(output: str) -> str:
    """The sentence that a command of `ottla` failed with; if there is none, its last line."""
    _, found, sentence = f"\n{output}".rpartition("\nottla: ")
    return sentence.strip() if found else output.strip().rpartition("\n")[2]


def chosen_flows(status: Mapping[str, Any], flows: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """The flows of `ottla pipeline status --json` to wait for: `flows`, else all that are not left out.

    Raises AirflowFailException for a flow that the run does not have, AirflowException if one, or the run, has failed
    or was killed.
    """
    known = status["flows"]
    # a run that starts for the first time has none yet
    unknown = [name for name in flows if known and name not in known]
    if unknown:
        raise AirflowFailException(f"run {status['name']} has no flow {unknown[0]!r}; there are {', '.join(known)}")
    if status["state"] in ("failed", "lost"):
        raise AirflowException(f"run {status['name']} is {status['state']}: {status['error'] or 'it was killed'}")
    chosen = {name: flow for name, flow in known.items() if name in flows or not (flows or flow["state"] == "left out")}
    for name, flow in chosen.items():
        if flow["state"] == "failed":
            raise AirflowException(f"{name} of run {status['name']} has failed: {flow['error']}")
    return chosen


def lag_of_flow(flow: Mapping[str, Any], since: float) -> int | None:
    """The lag of a flow of `ottla pipeline status --json`; None if none was measured after `since` (since 1970)."""
    figures = flow["figures"]
    return None if figures is None or figures["at"] < since else figures["lag_records"]


def _command(ottla: str | None, *arguments: str) -> list[str]:
    return ottla_command(*arguments) if ottla is None else [ottla, *arguments]
