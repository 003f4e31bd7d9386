"""The picture of the README shows what the commands print today."""

import re
from html import unescape

import pytest
from tools.docs.terminal import PICTURE, draw


def texts(picture: str) -> str:
    return unescape(re.sub(r"\s+", " ", " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture))))


@pytest.mark.thorough
def test_the_picture_is_what_the_commands_print() -> None:
    assert texts(PICTURE.read_text(encoding="utf-8")) == texts(draw()), "draw it again: python -m tools.docs.terminal"


def test_the_picture_fetches_nothing() -> None:
    assert "url(http" not in PICTURE.read_text(encoding="utf-8")
