"""Feeds broken documents and odd rows to the compiled `_json` or `_copy`: `python fuzz_native.py MODULE.so SEED RUNS`.

Run by a test under the address sanitizer. Every document is an allocation of its own, so that a byte read past its end
is found.
"""

import json
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from random import Random
from typing import Any

INNER = (("n", b'"n":', 1, -128, 127, None, ()), ("d", b'"d":', 8, 2, 0, str, (None,)))
DOCUMENT = {
    "s": 'a "text"\n\\ é', "i": -5, "f": 1.5e3, "b": True, "t": 1_760_000_000_123, "d": "AQI=", "p": "x",
    "a": [1, {"k": []}], "x": {"y": [None, "\\u"]}, "n": {"n": 1, "d": "/w=="},
}  # fmt: skip


def refuse(_: Any) -> Any:
    raise ValueError("refused")


def read_structs(native: Any, random: Random, runs: int) -> int:
    inner = native.StructReader(INNER)
    kinds = {"s": (4, None), "i": (1, None), "f": (2, None), "b": (3, None), "t": (9, str), "d": (8, str),
             "p": (6, refuse), "a": (7, bytes), "x": (0, None), "n": (5, inner)}  # fmt: skip
    fields = [(n, f'"{n}":'.encode(), kind, -9, 9, what, (None,)) for n, (kind, what) in kinds.items()]
    readers = [
        native.StructReader(tuple(fields)),
        native.StructReader(tuple(each for each in fields if each[0] != "p")),
    ]
    taken = 0
    for _ in range(runs):
        which = random.randrange(2)
        document = {name: value for name, value in DOCUMENT.items() if not which or name != "p"}
        text = bytearray(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())
        for _ in range(random.randrange(3)):
            at = random.randrange(len(text))
            text[at : at + random.randrange(3)] = random.choice(
                [b"", b'"', b"\\", b"\xff", b"[" * 99, b"9" * 20, b"null"]
            )
        cut = random.choice([len(text), random.randrange(len(text) + 1)])
        taken += readers[which].read(b"H" + bytes(text[:cut]) + b"}", b"H") is not None
        taken += readers[1].read(b"H" + bytes(text[:cut]) + b"}", b"H") is not None
        readers[0].read(bytes(text[:cut]), b"H" * random.randrange(200))
    return taken


def write_rows(native: Any, random: Random, runs: int) -> int:
    values: list[Any] = [
        None,
        "",
        "a\t\\\n\r",
        "é" * 999,
        1,
        1 << 90,
        -5,
        1.5,
        float("nan"),
        True,
        b"",
        b"\xff" * 99,
        [],
        "\ud800",
        {},
    ]
    taken = 0
    for _ in range(runs):
        width = random.randrange(5)
        rows: list[Any] = [
            tuple(random.choice(values[: random.choice([13, 15])]) for _ in range(width + (random.random() < 0.001)))
            for _ in range(random.choice([0, 1, 30, 300]))
        ]
        try:
            native.copy_bytes(rows, {list: refuse, int: str}, str)
        except ValueError:
            continue
        taken += 1
    return taken


def main(module: str, seed: int, runs: int) -> None:
    name = Path(module).name.partition(".")[0]
    loader = ExtensionFileLoader(f"ottla.{name}", module)
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    native = module_from_spec(spec)
    loader.exec_module(native)
    taken = {"_json": read_structs, "_copy": write_rows}[name](native, Random(seed), runs)
    assert 0.1 * runs < taken < 0.9 * runs, taken
    print(f"{runs} runs, {taken} taken")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
