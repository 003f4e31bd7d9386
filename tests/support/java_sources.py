"""Java programs of the tests' own, compiled by javac when they are first needed and kept in `.cache/`."""

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.genuine import KAFKA_VERSION, TOOL_JVM_OPTIONS, ToolFailedError, kafka_libs, locked
from tests.support.requirements import java_program, require

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_CACHE: Final = _REPOSITORY / ".cache" / "java"
_LOGGING: Final = _REPOSITORY / "benches" / "genuine" / "log4j2.properties"


def compiled(*sources: Path, libs: Sequence[Path] = ()) -> Path:
    """Directory of the classes of `sources`; safe to call from several processes at once.

    Args:
        sources: `.java` files, compiled together; warnings are errors.
        libs: directories of jars to compile against, beside Kafka's own.

    Raises:
        MissingProgramError: there is no JDK.
        ToolFailedError: javac has something to say; the message has it.
    """
    text = KAFKA_VERSION.encode() + b"\0".join(source.name.encode() + b"\0" + source.read_bytes() for source in sources)
    classes = _CACHE / hashlib.sha256(text).hexdigest()[:16]
    with locked(classes.with_name(f"{classes.name}.lock")):
        if not classes.exists():
            unfinished = classes.with_name(f"{classes.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            lint = ("-Xlint:all,-classfile,-path,-processing,-try", "-Werror", "-proc:none", "--release", "17")
            arguments = [*lint, "-cp", class_path(*libs), "-d", str(unfinished), *map(str, sources)]
            done = subprocess.run([require("javac"), *arguments], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ToolFailedError(f"javac refused {', '.join(source.name for source in sources)}:\n{done.stderr}")
            unfinished.rename(classes)
    return classes


def class_path(*directories: Path) -> str:
    """A class path of Kafka's jars and of the jars in `directories`."""
    return ":".join(f"{directory}/*" for directory in (kafka_libs(), *directories))


def java_command(
    classes: Path,
    class_name: str,
    *args: str,
    libs: Sequence[Path] = (),
    jvm_options: Sequence[str] = TOOL_JVM_OPTIONS,
) -> list[str]:
    """The command line that runs `class_name` of the compiled `classes`; `libs` as for `compiled`."""
    logging = f"-Dlog4j2.configurationFile={_LOGGING}"
    return [java_program(), *jvm_options, logging, "-cp", f"{classes}:{class_path(*libs)}", class_name, *args]
