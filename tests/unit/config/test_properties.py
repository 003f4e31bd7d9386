"""Java's properties format; the expectations are those of java.util.Properties.load."""

import pytest

from ottla.config.properties import PropertiesProblem, parse_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a = 1 \n", {"a": "1 "}),
        ("a:1\nb 2\nc\t:\t3\n", {"a": "1", "b": "2", "c": "3"}),
        ("  a=1\n\t# no\n ! no\n\n#x=1\nb=2", {"a": "1", "b": "2"}),
        ("a=b=c:d e", {"a": "b=c:d e"}),
        ("a=1,\\\n   2,\\\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=ends\\\\\nb=2", {"a": "ends\\", "b": "2"}),
        ("a=1\\\n", {"a": "1"}),
        ("a=1\\", {"a": "1"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=\\t\\n\\u0041\\q\\\\", {"a": "\t\nAq\\"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("a  1", {"a": "1"}),
        ("\ufeffa=1", {"a": "1"}),
        ("a=grün", {"a": "grün"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=#x", {"a": "#x"}),
        ("a=1\\\n#x", {"a": "1#x"}),
    ],
)
def test_reads_what_java_reads(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


@pytest.mark.parametrize(("text", "line"), [("a=1\n=2", 2), ("a=\\u12", 1), ("\n\na=1\n :x", 4)])
def test_says_which_line_is_wrong(text: str, line: int) -> None:
    with pytest.raises(PropertiesProblem, match=f"line {line}: "):
        parse_properties(text)
