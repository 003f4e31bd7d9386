"""What pytest imports and how."""

import gc
from importlib.machinery import SourceFileLoader
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support import lean_collection

import ottla.log


def test_asserts_of_ottlas_own_modules_are_not_rewritten() -> None:
    assert type(ottla.log.__loader__) is SourceFileLoader


def test_later_collections_pass_over_what_was_imported() -> None:
    assert gc.get_freeze_count() > 10_000


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_workers_share_everything(workers: int) -> None:
    inputs: list[Any] = [{"workerid": f"gw{number}", "workercount": workers} for number in range(workers)]
    shares = [lean_collection._share(cast(Any, SimpleNamespace(workerinput=each)), range(10)) for each in inputs]
    assert sorted(number for share in shares for number in share) == list(range(10))


def test_one_process_has_nothing_to_share() -> None:
    assert lean_collection._share(cast(Any, SimpleNamespace()), range(10)) == ()
