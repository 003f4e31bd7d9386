"""Checks of the project's English: docstring openings, phrases to avoid, log formats, missing docstrings.

    python -m tests.support.language             counts per package
    python -m tests.support.language --list told every place where a pattern occurs

`tests/unit/test_language.py` holds the counts at zero. docs/glossary.md lists the terms to use instead.
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

REPOSITORY: Final = Path(__file__).parents[2]
SOURCES: Final = REPOSITORY / "src"

PHRASES: Final = {
    "told": re.compile(r"\b(told|tells)\b", re.I),
    "said": re.compile(r"\b(said|says)\b", re.I),
    "heard": re.compile(r"\b(heard|hears?)\b", re.I),
    # People may be "who"; everything else is "which", "that", or gets its name.
    "who": re.compile(r"(?<!users )(?<!user )(?<!people )(?<!operator )(?<!operators )(?<!engineer )\bwho\b", re.I),
    "whoever": re.compile(r"\b(whoever|whom)\b", re.I),
    "no more": re.compile(r"\bno more\b(?=\s*(?:[.,;:!?)\"]|$))", re.I),
    "those of two": re.compile(r"\bthose of two\b", re.I),
}
"""Patterns, by the name under which they are counted, that prose does not contain."""

ALLOWED: Final = {
    ("told", "told apart"): "distinguished, of things; no report is meant",
}
"""Uses that stay, by pattern and the text around them, and why."""

_LOG_METHODS: Final = {"debug", "info", "warning", "error", "exception", "critical"}


class Finding(NamedTuple):
    """One place: the package, the file, the line, the pattern's name, and the sentence."""

    package: str
    file: Path
    line: int
    pattern: str
    text: str


class Prose(NamedTuple):
    """A docstring, comment or message of a module, at a line."""

    line: int
    kind: str
    text: str


def package_of(file: Path) -> str:
    """The package below `ottla` that a file belongs to; `docs` for pages, `ottla` for modules beside the packages."""
    if not file.is_relative_to(SOURCES):
        return "docs"
    parts = file.relative_to(SOURCES).parts
    return parts[1] if len(parts) > 2 else "ottla"


def sources() -> list[Path]:
    """Every module of the product."""
    return sorted(SOURCES.rglob("*.py"))


def pages() -> list[Path]:
    """Every page of documentation."""
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


class _Module(NamedTuple):
    tree: ast.Module
    nodes: list[ast.AST]


@lru_cache(maxsize=1)  # each file is looked at several times in a row
def _module(text: str) -> _Module:
    tree = ast.parse(text)
    return _Module(tree, list(ast.walk(tree)))


def prose_of_module(text: str) -> Iterator[Prose]:
    """Docstrings, comments, and string literals with a space in them."""
    nodes = _module(text).nodes
    documentation = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documentation.add(id(node.value))
            yield Prose(node.lineno, "docstring", " ".join(node.value.value.split()))
    for node in nodes:
        match node:
            case ast.Constant(value=str(literal)) if id(node) not in documentation and " " in literal.strip():
                yield Prose(node.lineno, "message", " ".join(literal.split()))
    yield from _comments(text)


def _comments(text: str) -> Iterator[Prose]:
    """Comments; lines that follow each other are one comment."""
    start, lines, last = 0, list[str](), -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if lines and token.start[0] != last + 1:
                yield Prose(start, "comment", " ".join(lines))
                lines = []
            if not lines:
                start = token.start[0]
            last = token.start[0]
            lines.append(token.string.lstrip("# "))
    if lines:
        yield Prose(start, "comment", " ".join(lines))


def prose_of_page(text: str) -> Iterator[Prose]:
    """The lines of a Markdown page that are no code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield Prose(number, "page", re.sub(r"`[^`]*`", "`code`", line))


def phrases(file: Path) -> Iterator[Finding]:
    """Phrases to avoid in one file, and docstrings that begin with "Of"."""
    text = file.read_text()
    prose = prose_of_module(text) if file.suffix == ".py" else prose_of_page(text)
    for line, kind, sentence in prose:
        if kind == "docstring" and sentence.startswith("Of "):
            yield Finding(package_of(file), file, line, "Of ...", sentence)
        for name, pattern in PHRASES.items():
            for found in pattern.finditer(sentence):
                around = sentence[max(0, found.start() - 40) : found.end() + 40]
                if not any(name == allowed and words in around for allowed, words in ALLOWED):
                    yield Finding(package_of(file), file, line, name, around)


def bare_log_formats(file: Path) -> Iterator[Finding]:
    """Log calls whose format has no word to search for, such as `"%s: %s"`."""
    for node in _module(file.read_text()).nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOG_METHODS:
            match node.args:
                case [ast.Constant(value=str(form)), _, *_]:
                    if not re.search(r"[A-Za-z]{4}", re.sub(r"%[-.\d]*[a-z]", "", form)):
                        yield Finding(package_of(file), file, node.lineno, "bare log", form)


def without_docstring(file: Path) -> Iterator[Finding]:
    """Public modules, classes, functions and methods without a docstring.

    Methods that only fulfil a base class or protocol have their description there: a class that names a base in its
    own definition is not asked for docstrings of its methods. Messages of the protocol are described by Kafka, and the
    function `handle` of a handler by its module.
    """
    tree = _module(file.read_text()).tree
    package = package_of(file)
    if package == "protocol" and "messages" in file.parts:
        return
    if not ast.get_docstring(tree) and tree.body:
        yield Finding(package, file, 1, "no docstring", "module")
    body = [
        node for node in tree.body if not (file.parent.name == "handlers" and getattr(node, "name", "") == "handle")
    ]
    yield from _undescribed(body, file, package, inherits=False)


def _undescribed(body: list[ast.stmt], file: Path, package: str, *, inherits: bool) -> Iterator[Finding]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            is_described = (
                ast.get_docstring(node) or _trivial(node) or (inherits and not isinstance(node, ast.ClassDef))
            )
            if not is_described:
                yield Finding(package, file, node.lineno, "no docstring", node.name)
            if isinstance(node, ast.ClassDef):
                yield from _undescribed(node.body, file, package, inherits=bool(node.bases))


def _trivial(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A function of one statement that its name describes; a class is never one."""
    return not isinstance(node, ast.ClassDef) and len(node.body) == 1


def findings() -> Iterator[Finding]:
    """Everything that the patterns find in sources and pages."""
    for file in sources():
        yield from phrases(file)
        yield from bare_log_formats(file)
        yield from without_docstring(file)
    for file in pages():
        yield from phrases(file)


def table(found: list[Finding]) -> str:
    """Counts, a line for each package and a column for each pattern."""
    columns = ["Of ...", *PHRASES, "bare log", "no docstring"]
    counts = Counter((finding.package, finding.pattern) for finding in found)
    packages = sorted({finding.package for finding in found})
    lines = ["".join(["package".ljust(14), *(column.rjust(max(8, len(column) + 2)) for column in columns)])]
    for package in [*packages, "total"]:
        row = [
            sum(count for (where, what), count in counts.items() if what == column and package in (where, "total"))
            for column in columns
        ]
        cells = (str(number).rjust(max(8, len(column) + 2)) for number, column in zip(row, columns, strict=True))
        lines.append("".join([package.ljust(14), *cells]))
    return "\n".join(lines)


def main() -> None:
    """Print the counts, or the places of one pattern."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="PATTERN", help="print the places of one pattern")
    arguments = parser.parse_args()
    found = list(findings())
    if arguments.list:
        for finding in found:
            if finding.pattern == arguments.list:
                print(f"{finding.file.relative_to(REPOSITORY)}:{finding.line}: {finding.text}")
    else:
        print(table(found))


if __name__ == "__main__":
    main()
