"""The demo as a person runs it: another process, looked at from outside."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ottla.cli.app import run
from tests.support.eventually import eventually

DEMO = (sys.executable, "-m", "ottla.cli.main", "demo")


def demo(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*DEMO, *arguments], capture_output=True, text=True, check=False, env=os.environ | environment, timeout=900
    )


@pytest.mark.timeout(1000)
def test_a_run_shows_what_it_found_and_proves_it(tmp_path: Path) -> None:
    _run_whole(tmp_path / "demo")


@pytest.mark.soak
@pytest.mark.timeout(2500)  # three times the start of a JVM, on a machine that may be busy
def test_a_run_is_stopped_and_the_next_is_clean_and_can_be_replayed(tmp_path: Path) -> None:
    data = tmp_path / "demo"
    _start_and_stop(data)
    _run_whole(data)

    again = demo("--data", str(data), "--replay", "--carrier", "UA", "--month", "1")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "The log holds 6,736 flights from an earlier run." in again.stdout
    assert "Delays by airline, carrier UA, month 1" in again.stdout


def _run_whole(data: Path) -> None:
    whole = demo("--data", str(data), "--share", "0.02")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert whole.stderr == ""
    assert "6,736 flights that left New York" in whole.stdout
    assert "69 spoilt records, each with its reason" in whole.stdout
    assert "17:00" in whole.stdout  # the plot; of 05:00 there are too few in a week
    assert (data / "job" / "pipelines" / "flights" / "delays.svg").read_text().startswith("<?xml")
    assert "Every figure equals the one computed from the files." in whole.stdout
    assert f"ottla demo --data {data} --replay --dest ORD" in whole.stdout
    assert "ottla console" in whole.stdout


def _start_and_stop(data: Path) -> None:
    """Ctrl-C, twice, in the middle of the job: nothing is left running."""
    process = subprocess.Popen(
        [*DEMO, "--data", str(data), "--share", "0.2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    begun = data / "job" / "pipelines" / "flights" / "checkpoints" / "enriched" / "offsets" / "0"
    eventually(lambda: begun.exists() or process.poll() is not None, timeout_s=200)
    assert process.poll() is None, process.communicate()
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) > 2  # the broker, the JVM, its Python workers

    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)

    assert process.returncode == 130
    assert complaint == "\nStopped.\n"
    assert psutil.wait_procs(started, timeout=10)[1] == []


def test_a_directory_with_other_things_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "thesis.tex"
    precious.write_text("everything")
    assert demo("--data", str(tmp_path)).returncode == 1
    assert precious.read_text() == "everything"
    assert list(tmp_path.iterdir()) == [precious]


def test_a_replay_needs_a_log(tmp_path: Path) -> None:
    done = demo("--data", str(tmp_path / "none"), "--replay")
    assert done.returncode == 1
    assert done.stderr.endswith("to replay: run the demo once without --replay\n")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_shown_leaves_an_earlier_demo_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "this-is-an-ottla-demo").touch()
    (tmp_path / "log").mkdir()
    for arguments, said in (
        (["--carrier", "AA", "--dest", "LAXX"], "none of 336,776 flights is for carrier AA, dest LAXX; did you mean"),
        (["--bootstrap", "127.0.0.1:1"], "no broker answers at 127.0.0.1:1 ("),
    ):
        assert demo("--data", str(tmp_path), *arguments).stderr.startswith(f"ottla: {said}")
    assert (tmp_path / "log").exists()


def test_java_is_asked_for_in_one_sentence(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = demo("--data", str(tmp_path), JAVA_HOME=str(tmp_path / "no-java"))
    assert done.returncode == 1
    assert done.stderr.startswith("ottla: Spark runs on Java 17 or newer; JAVA_HOME is ")
    assert done.stderr.count("\n") == 1
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < 30, "of the processor: it asks before it works"


def test_wrong_usage_has_its_own_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--share", "2"]) == 2
    assert "2.0 is not in the range" in capsys.readouterr().err
