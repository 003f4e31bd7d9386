"""What a function of the user's makes of dead letters."""

from pathlib import Path

import pytest

from ottla.pipeline.mending import Letter, MendError, load_mend, mended

LETTER = Letter(b"k", b'{"n": 1}', (("trace", b"7"),), "check failed: has carrier", topic="flights", partition=2)

NESTED: list[object] = []
for _ in range(100_000):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("made", "value"),
    [
        (b"\x00", b"\x00"),
        (bytearray(b"x"), b"x"),
        ("h\xe9", "h\xe9".encode()),
        ({"n": "h\xe9"}, '{"n": "h\xe9"}'.encode()),
        ([1], b"[1]"),
        (LETTER.changed(value=None), None),
        (LETTER.changed(value={"n": 2}), b'{"n": 2}'),
    ],
)
def test_a_function_returns_the_new_value_in_any_form(made: object, value: bytes | None) -> None:
    found = mended(lambda _letter: made, LETTER)
    assert found is not None
    assert (found.key, found.value, found.headers, found.reason) == (b"k", value, LETTER.headers, LETTER.reason)


def test_key_and_headers_can_be_changed_and_nothing_else() -> None:
    found = mended(lambda letter: letter.changed(key="K", headers=[("a", "b"), ("c", None)]), LETTER)
    assert found is not None
    assert (found.key, found.headers, found.value) == (b"K", (("a", b"b"), ("c", None)), LETTER.value)
    with pytest.raises(MendError, match="mended in its key, value and headers, not in offset"):
        mended(lambda letter: letter.changed(offset=3), LETTER)


def test_none_leaves_the_letter() -> None:
    assert mended(lambda _letter: None, LETTER) is None


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (3, "mend returned int as value: give bytes, text, or a dict or list as JSON"),
        (True, "mend returned bool as value"),
        ({"n": float("nan")}, "mend returned a value that is no JSON"),
        ({"n": {1}}, "mend returned a value that is no JSON"),
        (LETTER.changed(headers=["trace"]), "mend returned headers that are no pairs"),
        (LETTER.changed(key=7), "mend returned int as key"),
        ("\ud800", "mend returned a value that is no text"),
        ({"n": "\ud800"}, "mend returned a value that is no JSON"),
        (NESTED, "mend returned a value that is no JSON"),
        (LETTER.changed(headers={"ab": b"x"}), "mend returned headers that are no pairs"),
        (LETTER.changed(headers=["ab"]), "mend returned headers that are no pairs"),
        (LETTER.changed(headers=[(None, b"x")]), "mend returned headers that are no pairs"),
        (LETTER.changed(headers=[("\ud800", b"x")]), "mend returned a name of a header that is no text"),
        (LETTER.changed(headers=None), "mend returned headers that are no pairs"),
    ],
)
def test_what_is_no_record_is_refused(made: object, complaint: str) -> None:
    with pytest.raises(MendError, match=complaint):
        mended(lambda _letter: made, LETTER)


def test_a_function_that_fails_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mend.py"
    file.write_text("def mend(letter):\n    return letter.json()['carrier']\n")
    with pytest.raises(MendError, match=r"mend failed with KeyError: 'carrier' \(.*mend.py, line 2\)"):
        mended(load_mend(file), LETTER)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def mend(letter:\n", "mend.py, line 1: "),
        ("import no_such_module\n", "No module named"),
        ("mend = 3\n", r"mend.py has no function mend\(letter\)"),
        ("", r"mend.py has no function mend\(letter\)"),
    ],
)
def test_files_without_the_function_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "mend.py"
    file.write_text(text)
    with pytest.raises(MendError, match=complaint):
        load_mend(file)
