"""Every module that the page on architecture names exists."""

import re
from fnmatch import fnmatchcase

from tools.docs.markdown import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Codebases worth reading")[0]
PLACEHOLDER = "protocol/messages/x.py"


def named_modules() -> set[str]:
    """Paths that end in `.py`, with `a/{b,c}.py` as `a/b.py` and `a/c.py`."""
    found = set(re.findall(r"[\w*/]+\.py\b", PAGE))
    for before, choices, after in re.findall(r"([\w/]*)\{([\w,]+)\}([\w/]*\.py)\b", PAGE):
        found |= {f"{before}{choice}{after}" for choice in choices.split(",")}
    return {name for name in found if name != PLACEHOLDER and not name.startswith("/")}


def test_modules_exist() -> None:
    there = [f"/{path.relative_to(ROOT)}" for part in ("src", "tests", "tools") for path in (ROOT / part).rglob("*.py")]
    names = named_modules()
    assert len(names) > 100
    assert sorted(name for name in names if not any(fnmatchcase(path, f"*/{name}") for path in there)) == []
