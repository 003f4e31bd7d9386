"""What `ottla quota` refuses before it asks a broker."""

import pytest
from click.testing import CliRunner

from ottla.cli.quota.commands import command


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("set", "producer_byte=1", "--user", "a"), "did you mean 'producer_byte_rate'?"),
        (("set", "producer_byte_rate=1"), "name whose quota it is"),
        (("set", "producer_byte_rate=0", "--user", "a"), "a number above 0"),
        (("set", "producer_byte_rate=nan", "--user", "a"), "a number above 0"),
        (("set", "producer_byte_rate", "--user", "a"), "is not QUOTA=VALUE"),
        (("set", "producer_byte_rate=1", "producer_byte_rate=2", "--user", "a"), "given twice"),
        (("set", "connection_creation_rate=1", "--user", "a", "--ip", "10.0.0.1"), "name it alone"),
        (("list", "--user", "a", "--any-user"), "exclude each other"),
        (("list", "--client", ""), "--client is empty"),
        (("top", "--most", "0"), "1<=x<=1000"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], problem: str) -> None:
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert problem in done.output
