"""What `ottla.pipeline.rows` offers, whichever of its modules was imported before."""

from importlib import import_module
from types import ModuleType

from ottla.pipeline import rows


def test_functions_keep_their_names_when_their_modules_are_imported() -> None:
    for name, where in rows._WHERE.items():
        import_module(where)
        assert not isinstance(getattr(rows, name), ModuleType), name
    assert set(rows._WHERE) == set(rows.__all__)
