"""The authorizer of docs/acls.md, installed in a directory as a package would be."""

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "acls.md"


def install(directory: Path, **modules: str) -> Path:
    """Make a distribution of the page's example in `directory`; `modules` are more of it, with a comment
    `# AUTHORIZER name = module:class` for each authorizer in them. Returns the directory."""
    (declared,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    points = [*declared.replace('"', "").splitlines()[1:]]
    for name, source in {"payroll": example, **modules}.items():
        (directory / f"{name}.py").write_text(source)
        points += re.findall(r"^# AUTHORIZER (.+)$", source, re.MULTILINE)
    metadata = directory / "payroll-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: payroll\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("\n".join(["[ottla.authorizers]", *points]) + "\n")
    return directory
