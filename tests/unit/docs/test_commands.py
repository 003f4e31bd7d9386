"""Every command of the documentation exists, with the options that it is shown with."""

from pathlib import Path

import pytest
from tools.docs.commands import NoSuchCommandError, check, make_targets
from tools.docs.markdown import ROOT, commands, pages

PROGRAMS = ("ottla ", "make ", "pip ", "python -m ")


@pytest.mark.parametrize(
    "page", [page for page in pages() if page.exists()], ids=lambda page: str(page.relative_to(ROOT))
)
def test_commands_exist(page: Path) -> None:
    problems = []
    for line in commands(page.read_text(encoding="utf-8")):
        try:
            checked = check(line)
        except NoSuchCommandError as problem:
            problems.append(f"{line}: {problem}")
        else:
            assert checked or not line.startswith(PROGRAMS), f"not looked at: {line}"
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("ottla topics list", "no command 'topics'"),
        ("ottla topic lists", "no command 'lists'"),
        ("printf x | ottla produce orders --keys-separator :", "no option '--keys-separator'"),
        ("cd there && ottla serve --insecure", "no option '--insecure'"),
        ("make everything", "no target 'everything'"),
        ("pip install 'ottla[pipeline]'", "not on a public index"),
        ("pip install '.[pipelines]'", "no extra 'pipelines'"),
        ("pip install --editables .", "no option '--editables'"),
        ("pip install no-such-package", "does not name that package"),
        ("python -m tests.no_such_module", "no module"),
    ],
)
def test_a_command_that_does_not_exist_is_found_out(line: str, problem: str) -> None:
    with pytest.raises(NoSuchCommandError, match=problem):
        check(line)


@pytest.mark.parametrize(
    "line",
    [
        "ottla topic list 'orders.*' --internal   # those of Kafka, too",
        "ottla group seek g --topic t --shift-by -5 --execute",
        "ottla connect serve & ottla connect status orders --watch",
        'CI=true make test ARGS="-k log"',
        'pip install "$(ls dist/ottla-*.whl)[pipeline]"',
        "pip install '.[pipeline,connect]' aiokafka",
        "python -m tests.simulation --seeds 17",
    ],
)
def test_a_command_that_exists_passes(line: str) -> None:
    assert check(line) >= 1


def test_the_makefile_documents_its_targets() -> None:
    assert {"install", "unit", "test", "docs", "dist", "check"} <= make_targets()
