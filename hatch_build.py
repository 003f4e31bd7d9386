"""Builds the modules in C: in place with `python hatch_build.py`, and as the wheel's build hook.

Ottla works without them: where there is no C compiler, or no headers of Python, what is slower takes their place.
The modules keep to Python's stable ABI, so that one build serves every version from 3.11 on.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = (
    HERE / "src/ottla/records/_native.c",
    HERE / "src/ottla/spark/_columns.c",
    HERE / "src/ottla/connect/converters/_json.c",
    HERE / "src/ottla/connect/connectors/relational/_copy.c",
)


def module_of(source: Path) -> Path:
    """Where a source's module is."""
    return source.with_name(f"{source.stem}.abi3.so")


def build() -> str | None:
    """Compile each module beside its source; why that was not possible, or None. Older ones are removed first."""
    for each in SOURCES:
        module_of(each).unlink(missing_ok=True)
    for each in SOURCES:
        problem = compile_module(each)
        if problem is not None:
            return problem
    return None


def compile_module(source: Path) -> str | None:
    """Compile one; why that was not possible, or None."""
    module = module_of(source)
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    undefined = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    unfinished = module.with_name(f"{module.name}.{os.getpid()}")
    try:
        subprocess.run(
            [
                *compiler,
                *["-std=c11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", *undefined],
                f"-I{sysconfig.get_path('include')}",
                *[str(source), "-o", str(unfinished)],
                *shlex.split(os.environ.get("CFLAGS", "")),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        unfinished.replace(module)
    except subprocess.CalledProcessError as error:
        return f"{compiler[0]} failed for {source.name}: {error.stderr.strip()}"
    except OSError as error:
        return f"{compiler[0]}: {error.strerror}"
    return None


def main() -> None:
    """Build in place; exits with 0 also without a compiler, having said so."""
    problem = build()
    if problem is None:
        print("Built " + ", ".join(str(module_of(each).relative_to(HERE)) for each in SOURCES))
    else:
        print(
            "What is in C was not compiled; Ottla does it in Python instead, which takes more CPU "
            f"(Debian: apt-get install gcc libc6-dev python3-dev). {problem}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class NativeHook(BuildHookInterface):
        """Compiles the modules before a wheel, or an editable installation, is made."""

        def initialize(self, version: str, build_data: dict) -> None:
            problem = build()
            if problem is not None:
                self.app.display_warning(f"what is in C was not compiled: {problem}")
            elif version != "editable":
                platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
                build_data["pure_python"] = False
                build_data["tag"] = f"cp311-abi3-{platform}"
                for each in map(module_of, SOURCES):
                    build_data["force_include"][str(each)] = str(each.relative_to(HERE / "src"))
