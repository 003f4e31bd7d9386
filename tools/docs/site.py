"""Hooks of MkDocs: the pages that are made from code or lie outside `docs`, and the list of decisions.

A page of the site that is not in `docs` is generated: the README and its neighbours at the root, and the reference of
all commands. Links between files of the repository are turned into links between pages of the site.
"""

import os
import re
from pathlib import PurePosixPath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.docs.commands_page import commands_page
from tools.docs.markdown import PROSE, ROOT

DECISIONS: Final = "adr"
INDEX: Final = f"{DECISIONS}/index.md"
COMMANDS: Final = "commands.md"
NAMES: Final = {
    "README.md": "index.md",
    "benches/README.md": "benchmarks.md",
    "tests/chaos/README.md": "chaos.md",
    **{name: name.lower() for name in PROSE if "/" not in name and name != "README.md"},
    "SECURITY.md": "security-policy.md",  # docs/security.md is how to secure a cluster
}
"""Files outside `docs`, and the pages they become."""
SITE_TO_FILE: Final = {page: file for file, page in NAMES.items()}
INLINE_LINK: Final = re.compile(r"\]\((?P<path>[^()\s#:]+)(?P<anchor>#[^()\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every decision, and every page that mkdocs.yml does not name, into the navigation."""
    config.nav = [_with_decisions(entry) for entry in config.nav or []]
    named = set(_targets(config.nav))
    rest = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in named)
    for section in config.nav:
        if rest and isinstance(section, dict) and "Explanation" in section:
            section["Explanation"] += [{_title(f"docs/{name}"): name} for name in rest]
    config.watch += [str(ROOT / name) for name in NAMES]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that `docs` does not have."""
    for name, page in NAMES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, COMMANDS, content=commands_page()))
    files.append(File.generated(config, INDEX, content=_index_of_decisions()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links to pages of the site."""
    here = page.file.src_uri
    source = PurePosixPath(SITE_TO_FILE.get(here, f"docs/{here}"))

    def on_site(match: re.Match[str]) -> str:
        path = os.path.normpath(source.parent / match["path"])
        target = NAMES.get(path) or (INDEX if path == "docs/adr" else path.removeprefix("docs/"))
        if target == path and path not in NAMES.values():
            raise PluginError(f"{source}: {match['path']} is no page of the site; write it as code, not as a link")
        return f"]({os.path.relpath(target, PurePosixPath(here).parent)}{match['anchor'] or ''})"

    return INLINE_LINK.sub(on_site, markdown) if here != COMMANDS else markdown


def _with_decisions(entry: Any) -> Any:
    """The entry of the navigation, with one for each decision instead of the word `adr`."""
    if isinstance(entry, dict):
        return {title: _with_decisions(content) for title, content in entry.items()}
    if isinstance(entry, list):
        return [_with_decisions(each) for each in entry]
    if entry == DECISIONS:
        return [INDEX, *({title: f"{DECISIONS}/{name}"} for name, title in _decisions())]
    return entry


def _targets(entry: Any) -> list[str]:
    if isinstance(entry, dict):
        return [target for content in entry.values() for target in _targets(content)]
    if isinstance(entry, list):
        return [target for each in entry for target in _targets(each)]
    return [entry]


def _decisions() -> list[tuple[str, str]]:
    """File names and titles of all decision records, by number."""
    return [(path.name, _title(f"docs/adr/{path.name}")) for path in sorted((ROOT / "docs" / DECISIONS).glob("0*.md"))]


def _index_of_decisions() -> str:
    lines = ["# Decisions", "", "Each record says what was decided, why, and what was rejected.", ""]
    return "\n".join([*lines, *(f"- [{title}](docs/adr/{name})" for name, title in _decisions()), ""]).replace(
        "docs/adr/", ""
    )


def _title(name: str) -> str:
    first = (ROOT / name).read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("# ").replace("`", "")
