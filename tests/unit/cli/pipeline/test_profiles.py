"""Profiles of a job: what `ottla.toml` may hold, and what `ottla pipeline run --profile` makes of it."""

from pathlib import Path

import pytest

from ottla.cli.app import run
from ottla.cli.brokers.client import Connection
from ottla.cli.pipeline.profiles import Profile, read_profile
from ottla.cli.terminal import exits
from ottla.cli.terminal.exits import CommandFailed
from ottla.pipeline import running
from ottla.pipeline.run_store import STOPPED, RunRecord, run_directory
from ottla.pipeline.running import RunRequest

JOB = """
from ottla.pipeline import Job, topic

job = Job("sales", bootstrap="of-the-job:1")
COUNTRY, RATE, PASSWORD = job.param("country", "NL"), job.param("rate", "0"), job.param("password", "")


@job.flow(orders=topic("orders"), to=topic("paid"))
def paid(orders):
    return orders
"""
FILE = """
[profile.test]

[profile.prod]
bootstrap = "${env:BROKERS}"
command-config = "clients/prod.properties"

[profile.prod.params]
country = "BE"
rate = 2
password = "${file:SECRETS:shop}"

[profile.prod.conf]
"spark.driver.memory" = "4g"
"spark.executor.cores" = 2
"spark.ui.enabled" = true
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BROKERS", "of-the-profile:1")
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)
    (tmp_path / "sales.py").write_text(JOB)
    (tmp_path / "secrets").write_text("shop=hunter2\n")
    (tmp_path / "ottla.toml").write_text(FILE.replace("SECRETS", str(tmp_path / "secrets")))
    (tmp_path / "clients").mkdir()
    (tmp_path / "clients" / "prod.properties").write_text("client.id=sales\nclient.rack=a\n")
    return tmp_path


def test_a_profile_is_read_with_its_placeholders_replaced(place: Path) -> None:
    assert read_profile(place, "prod") == Profile(
        bootstrap="of-the-profile:1",
        command_config=place / "clients" / "prod.properties",
        params={"country": "BE", "rate": "2", "password": "hunter2"},
        conf={"spark.driver.memory": "4g", "spark.executor.cores": "2", "spark.ui.enabled": "true"},
        secret=frozenset({"password"}),
    )
    assert read_profile(place, "test") == Profile()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[profile.prod]\nbootstraps = 'a:1'", "'prod': there is no key 'bootstraps'; did you mean 'bootstrap'?"),
        ("[profile.prod]\nbootstrap = 9092", "'prod': bootstrap is text, not 9092"),
        ("[profile.prod]\nparams = 'a=b'", "'prod': params is a table of names and values, not 'a=b'"),
        ("[profile.prod.params]\nday = 2026-01-01", "params has 'day', whose value is neither text nor a number"),
        ("[profile.prod.conf]\nmaster = 'yarn'", "conf has 'master', which is no setting of Spark"),
        ("[profile.prod.conf]\n'spark.x' = '${env:NOWHERE}'", "spark.x: ${env:NOWHERE} has no value: there is no such"),
        ("[profile.prod.params]\nkey = '${ENV:KEY}'", "key: ${ENV:KEY} has no value: there are env, file, dir"),
        ("[profile]\nprod = 1", "profile 'prod' is no table: write [profile.prod]"),
        ("[profile.prd]", "ottla.toml has no profile 'prod'; did you mean 'prd'?"),
        ("[profiles.prod]", "there is no table 'profiles': it has [profile.NAME] alone"),
        ("", "ottla.toml has no profile: write one as [profile.NAME]"),
        ("[profile", "ottla.toml is not TOML: "),
    ],
)
def test_what_is_wrong_is_named(content: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "ottla.toml").write_text(content)
    with pytest.raises(CommandFailed) as failure:
        read_profile(tmp_path, "prod", {})
    assert complaint in str(failure.value)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunRequest]:
    """What would have been run, without Spark and without brokers."""
    requests: list[RunRequest] = []
    monkeypatch.setattr(running, "run", lambda request, _screen: requests.append(request))
    monkeypatch.setattr(Connection, "reach", lambda _connection: None)
    return requests


def start(place: Path, *options: str) -> None:
    assert run(["pipeline", "run", str(place / "sales.py"), "--home", str(place / "home"), *options]) == exits.OK


def test_a_run_gets_its_profile(place: Path, started: list[RunRequest]) -> None:
    start(place, "--profile", "prod")
    start(place)

    with_profile, without = started
    assert (with_profile.bootstrap, without.bootstrap) == ("of-the-profile:1", "of-the-job:1")
    assert with_profile.properties == {"client.id": "sales", "client.rack": "a"}
    assert with_profile.settings["spark.driver.memory"] == "4g"
    assert with_profile.job.parameters == {"country": "BE", "rate": "2", "password": "hunter2"}
    assert without.job.parameters == {"country": "NL", "rate": "0", "password": ""}


def test_secrets_of_a_profile_are_not_kept(place: Path, started: list[RunRequest]) -> None:
    start(place, "--profile", "prod")
    assert started[0].parameters == {"country": "BE", "rate": "2"}


def test_the_command_line_wins(place: Path, started: list[RunRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "of-the-environment:1")
    given = ("--param", "password=other", "--conf", "spark.driver.memory=1g", "-X", "client.rack=b")
    start(place, "--profile", "prod", *given)
    start(place, "--profile", "prod", "--bootstrap", "of-the-command:1")

    first, second = started
    assert (first.bootstrap, second.bootstrap) == ("of-the-profile:1", "of-the-command:1")
    assert first.settings["spark.driver.memory"] == "1g"
    assert first.properties == {"client.id": "sales", "client.rack": "b"}
    assert first.parameters == {"country": "BE", "rate": "2", "password": "other"}


def test_a_profile_wins_over_an_earlier_start(place: Path, started: list[RunRequest]) -> None:
    directory = run_directory(place / "home", "sales")
    directory.path.mkdir(parents=True)
    earlier = RunRecord("sales", "sales", str(place / "sales.py"), "", "", "local", 1, 0.0, state=STOPPED)
    earlier.parameters = {"country": "DE", "password": "old"}
    directory.write(earlier)

    start(place, "--profile", "prod")
    start(place)

    assert started[0].parameters == {"country": "BE", "rate": "2"}
    assert started[1].parameters == {"country": "DE", "password": "old"}


def test_without_a_file_there_is_no_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sales.py").write_text(JOB)
    assert run(["pipeline", "run", str(tmp_path / "sales.py"), "--profile", "prod"]) == exits.FAILED
    assert "ottla.toml does not exist: --profile is read from it" in capsys.readouterr().err
