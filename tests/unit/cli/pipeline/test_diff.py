"""Options of `ottla pipeline diff` that would make everything equal."""

import pytest

from ottla.cli.app import run
from ottla.cli.terminal import exits


@pytest.mark.parametrize("tolerance", ["nan", "inf", "-0.1"])
def test_a_tolerance_is_a_finite_number(tolerance: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "diff", "a", "b", "--tolerance", tolerance]) == exits.USAGE
    assert "--tolerance" in capsys.readouterr().err
