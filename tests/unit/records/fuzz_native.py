"""Feeds mutilated batches to a compiled `_native` module: `python fuzz_native.py MODULE.so SEED RUNS`.

Run by a test under the address sanitizer. Every chunk is an allocation of exactly its size, so that a byte read past
its end is found.
"""

import ctypes
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))

from tests.unit.records.structure_inputs import chunks, mutilated, sound


def exactly(data: bytes) -> "ctypes.Array[ctypes.c_char]":
    return (ctypes.c_char * len(data)).from_buffer_copy(data)


def main(module: str, seed: int, runs: int) -> None:
    loader = ExtensionFileLoader("ottla.records._native", module)
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    native = module_from_spec(spec)
    loader.exec_module(native)
    random = Random(seed)
    refused = 0
    for _ in range(runs):
        given = random.choice([sound, mutilated, mutilated])(random)
        at_once = native.scan(exactly(given.records), *given.expected)
        scanner = native.Scanner(*given.expected)
        for chunk in chunks(random, given.records):
            scanner.feed(exactly(chunk))
        assert scanner.finish() == at_once, given
        refused += at_once[0] != 0
    assert 0.1 * runs < refused < 0.9 * runs, refused
    print(f"{runs} batches, {refused} refused")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
