"""The policy of docs/policies.md, installed in a directory as a package would be."""

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "policies.md"


def documented(language: str) -> str:
    """The page's code in a language."""
    (code,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(code)


def install(directory: Path, **modules: str) -> Path:
    """Make a distribution of the page's example in `directory`; `modules` are more of it, with a comment
    `# POLICY name = module:class` for each policy in them. Returns the directory."""
    points = [*documented("toml").replace('"', "").splitlines()[1:]]
    for name, source in {"house": documented("python"), **modules}.items():
        (directory / f"{name}.py").write_text(source)
        points += re.findall(r"^# POLICY (.+)$", source, re.MULTILINE)
    metadata = directory / "house-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: house\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("\n".join(["[ottla.policies]", *points]) + "\n")
    return directory
