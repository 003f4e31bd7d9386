"""Feeds mutilated batches to the compiled `_columns`: `python fuzz_columns.py MODULE.so SEED RUNS`.

Run by a test under the address sanitizer. Every payload and every column is an allocation of exactly its size, so that
a byte beyond its end that is read or written is found.
"""

import ctypes
import struct
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from random import Random
from typing import Any

from tests.unit.records.structure_inputs import mutilated, sound


def room(size: int) -> Any:
    return (ctypes.c_char * size)()


def main(module: str, seed: int, runs: int) -> None:
    loader = ExtensionFileLoader("ottla.spark._columns", module)
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    native = module_from_spec(spec)
    loader.exec_module(native)
    random = Random(seed)
    refused = 0
    for _ in range(runs):
        given = random.choice([sound, sound, mutilated])(random)
        size = len(given.records)
        count = min(given.expected[0], size // 7)
        claimed = random.choice([count, count, count, count + 1, 1 << 31, -1])
        end = random.choice([size, size, size, size + 1])
        batch = struct.pack("7q", 0, end, claimed, random.randrange(-9, 1 << 62), given.expected[1], -1, 0)
        bits = (count + 7) // 8
        column = (4 * (count + 1), size, bits)
        sizes = [8 * count, 8 * count, bits, 4 * count, 8 * count, *column, *column]
        if random.random() < 0.05:
            sizes[random.randrange(len(sizes))] -= 1
        payload = (ctypes.c_char * size).from_buffer_copy(given.records)
        try:
            rows = native.decode(payload, batch, -(1 << 63), (1 << 63) - 1, *(room(max(each, 0)) for each in sizes))[0]
            assert rows == count
        except ValueError:
            refused += 1
    assert 0.1 * runs < refused < 0.9 * runs, refused
    print(f"{runs} batches, {refused} refused")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
