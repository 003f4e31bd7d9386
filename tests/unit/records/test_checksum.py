"""The checksum is the one of RFC 3720, and loading it is quick."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from ottla.records import checksum
from ottla.records.checksum import crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)],
)
def test_the_values_of_rfc_3720(data: bytes, expected: int) -> None:
    assert crc32c(data) == crc32c(memoryview(bytearray(data))) == expected


def test_the_package_around_it_is_not_loaded() -> None:
    program = "import sys, ottla.records.checksum; sys.exit('importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-I", "-c", program], check=False).returncode == 0


def test_where_the_extension_module_is_not_found_the_package_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "PathFinder", SimpleNamespace(find_spec=lambda *_: None))
    slow = checksum._load()
    assert slow is not crc32c
    assert slow(b"123456789") == 0xE3069283
