"""PURE. CRC-32C by the processor's own instruction, over any buffer and without a copy.

The function is that of the `crc32c` package. Its `__init__` also reads its own version from the installed metadata,
which takes 25 ms, an eighth of the broker's start; so the extension module is loaded by itself.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.records.batch import Buffer


def _load() -> "Callable[[Buffer], int]":
    package = find_spec("crc32c")  # finds, and does not import
    spec = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        from crc32c import crc32c as slow_to_import

        return slow_to_import
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    loaded: Callable[[Buffer], int] = module.crc32c
    return loaded


crc32c: Final = _load()
"""The CRC-32C of a contiguous buffer, as an unsigned 32-bit number."""
