"""The list of long files, which run first, names files and directories that exist."""

from pathlib import Path

TESTS = Path(__file__).parents[2]


def test_each_is_there_and_once() -> None:
    names = (TESTS / "long_files.txt").read_text().split()
    assert len(set(names)) == len(names)
    assert [name for name in names if not (TESTS / name).exists()] == []
