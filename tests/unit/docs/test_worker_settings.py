"""The table of a worker's settings is that of the code."""

from tools.docs.markdown import ROOT

from ottla.connect.runtime.worker_settings import WorkerSettings


def rows() -> list[str]:
    """A row for each setting, as the page has them."""
    found = []
    for name, field in WorkerSettings.model_fields.items():
        default = {None: "", True: "true", False: "false"}.get(field.default, str(field.default))
        found.append(f"| `{field.alias or name}` | {field.description} | {f'`{default}`' if default else 'none'} |")
    return found


def test_every_setting_of_a_worker_is_on_the_page_with_its_default() -> None:
    section = (ROOT / "docs" / "connect.md").read_text(encoding="utf-8").partition("### Settings of a worker\n")[2]
    assert [line for line in section.splitlines() if line.startswith("| `")] == rows()
