"""Texts of which Python has another idea than the servers."""

import pytest

from ottla.connect.connectors.mysql.decoding.charsets import decoder


@pytest.mark.parametrize(
    ("charset", "raw", "text"),
    [
        ("utf16", "0436005ad83dde00", "жZ😀"),
        ("ucs2", "0436005a", "жZ"),
        ("utf32", "0001f60000000436", "😀ж"),
        ("utf16le", "36045a00", "жZ"),
        ("latin1", "8180e9", "\x81€é"),
        ("sjis", "815fb1", "\\ｱ"),
        ("ujis", "a1c0f5a18ff5a1", "\\\ue000\ue3ac"),
        ("eucjpms", "ada1a1c18ff3f3", "①～ⅰ"),
        ("big5", "f9d6", "碁"),
        ("euckr", "8141", "갂"),
        ("swe7", "5d7d", "Åå"),
        ("geostd8", "c0", "ა"),
        ("gbk", "61ff", "a?"),
        ("ascii", "61e9", "a?"),
        ("utf8mb4", "61", "a"),
    ],
)
def test_texts_are_those_that_the_server_has(charset: str, raw: str, text: str) -> None:
    assert decoder(charset)(bytes.fromhex(raw)) == text
