"""Builds `ottla.records._native`: in place with `python hatch_build.py`, and as the wheel's build hook.

Ottla works without it: where there is no C compiler, or no headers of Python, a slower twin in Python takes its place.
The module keeps to Python's stable ABI, so that one build serves every version from 3.11 on.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "src/ottla/records/_native.c"
MODULE = SOURCE.with_name("_native.abi3.so")


def build() -> str | None:
    """Compile the module beside its source; why that was not possible, or None. An older one is removed first."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    undefined = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    unfinished = MODULE.with_name(f"{MODULE.name}.{os.getpid()}")
    MODULE.unlink(missing_ok=True)
    try:
        subprocess.run(
            [
                *compiler,
                *["-std=c11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", *undefined],
                f"-I{sysconfig.get_path('include')}",
                *[str(SOURCE), "-o", str(unfinished)],
                *shlex.split(os.environ.get("CFLAGS", "")),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        unfinished.replace(MODULE)
    except subprocess.CalledProcessError as error:
        return f"{compiler[0]} failed: {error.stderr.strip()}"
    except OSError as error:
        return f"{compiler[0]}: {error.strerror}"
    return None


def main() -> None:
    """Build in place; exits with 0 also without a compiler, having said so."""
    problem = build()
    if problem is None:
        print(f"Built {MODULE.relative_to(HERE)}")
    else:
        print(
            f"{SOURCE.name} was not compiled; Ottla checks records in Python instead, which takes more CPU "
            f"(Debian: apt-get install gcc libc6-dev python3-dev). {problem}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class NativeHook(BuildHookInterface):
        """Compiles the module before a wheel, or an editable installation, is made."""

        def initialize(self, version: str, build_data: dict) -> None:
            problem = build()
            if problem is not None:
                self.app.display_warning(f"{SOURCE.name} was not compiled: {problem}")
            elif version != "editable":
                platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
                build_data["pure_python"] = False
                build_data["tag"] = f"cp311-abi3-{platform}"
                build_data["force_include"][str(MODULE)] = f"ottla/records/{MODULE.name}"
