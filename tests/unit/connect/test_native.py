"""What connectors have in C, fed with what is broken under the address sanitizer."""

import os
from pathlib import Path

import pytest
from tests.support.sanitizer import run_sanitized

from ottla.connect.connectors.relational import copy_text
from ottla.connect.converters import json_readers

SOURCES = [Path(json_readers.__file__).with_name("_json.c"), Path(copy_text.__file__).with_name("_copy.c")]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_the_c_code_under_the_address_sanitizer(source: Path, tmp_path: Path) -> None:
    runs = os.environ.get("OTTLA_FUZZ_RUNS", "3000")
    printed = run_sanitized(source, tmp_path, Path(__file__).with_name("fuzz_native.py"), "1", runs)
    assert f"{runs} runs" in printed
