"""Reports in JUnit's XML, read back with a parser."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.pipeline.junit import CaseResult, to_xml


def read(results: list[CaseResult]) -> ElementTree.Element:
    root = ElementTree.fromstring(to_xml("delays", results))
    assert root.tag == "testsuites"
    (suite,) = root
    return suite


def test_outcomes() -> None:
    suite = read(
        [
            CaseResult("good", 6.25),
            CaseResult("wrong", 1.5, ["delays: 0 as expected", '  ~ <a> & "b"', "      late: 3, expected 4"]),
            CaseResult("broken", 0.0, error="flow 'delays' failed"),
        ]
    )

    assert suite.attrib == {
        "name": "delays",
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
        "time": "7.750",
    }
    good, wrong, broken = suite
    assert (good.attrib, list(good)) == ({"classname": "delays", "name": "good", "time": "6.250"}, [])
    (failure,) = wrong
    assert (failure.tag, failure.get("message")) == ("failure", "delays: 0 as expected")
    assert failure.text == 'delays: 0 as expected\n  ~ <a> & "b"\n      late: 3, expected 4'
    (error,) = broken
    assert (error.tag, error.get("message"), error.text) == ("error", "flow 'delays' failed", "flow 'delays' failed")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("\x00 \x1b[31m \x7f", "\\x00 \\x1b[31m \x7f"),
        ("\ud800", "\\ud800"),
        ("\ufffe\uffff", "\\ufffe\\uffff"),
        ("tab\tä\U0001f600", "tab\tä\U0001f600"),
        ("]]>", "]]>"),
    ],
)
def test_characters_that_xml_forbids_are_shown_as_in_python(text: str, written: str) -> None:
    (case,) = read([CaseResult("a", 0.0, [text])])
    assert case[0].text == written


@given(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=())))
def test_any_text_makes_a_report_that_can_be_read(name: str, text: str) -> None:
    (case,) = read([CaseResult(name, 0.0, error=text)])
    assert case[0].tag == "error"
