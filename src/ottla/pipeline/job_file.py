"""Loading a job file, with what is wrong with it as a sentence."""

import hashlib
import sys
import traceback
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from ottla.pipeline.errors import JobError
from ottla.pipeline.job import Job, with_parameters


def load_job(
    path: Path, parameters: Mapping[str, str] | None = None, remembered: Mapping[str, str] | None = None
) -> Job:
    """Run a job file and give the one Job in it, checked.

    `parameters` are what its `Job.param` gives, and have to be the job's; `remembered`, of an earlier run, give what
    they do not, and may be of a job that has changed since.

    Its directory comes first on sys.path, as for a script; its functions travel to Python workers by value, so that
    workers need not find the file. Raises JobError.
    """
    if not path.exists():
        raise JobError(f"{path} does not exist: give the Python file that declares the job")
    if path.is_dir() or path.suffix != ".py":
        raise JobError(f"{path} is no Python file: give the one that declares the job")
    with with_parameters({**(remembered or {}), **(parameters or {})}):
        module = _run(path.resolve())
    jobs = {id(each): each for each in vars(module).values() if isinstance(each, Job)}
    if not jobs:
        raise JobError(f"{path} declares no job: it needs a line such as job = Job({path.stem!r})")
    if len(jobs) > 1:
        found = " and ".join(repr(each.name) for each in jobs.values())
        raise JobError(f"{path} declares more than one job ({found}): put each into a file of its own")
    (job,) = jobs.values()
    try:
        job.check(parameters or {})
    except JobError as problem:
        raise JobError(f"{path}: {problem}") from None
    return job


def fingerprint(path: Path) -> str:
    """Fingerprint of the file's content, which changes when the file is edited. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(path: Path) -> ModuleType:
    name = f"ottla_job_{path.stem.replace('-', '_').replace('.', '_')}"
    spec = spec_from_file_location(name, path)
    assert spec is not None  # a .py file has a loader
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        where = error.filename or path
        raise JobError(f"{where}, line {error.lineno}: {error.msg}: {(error.text or '').strip()}") from None
    except JobError as problem:
        raise JobError(f"{path}, line {_line(problem, path)}: {problem}") from None
    except ModuleNotFoundError as error:
        raise JobError(
            f"{path}, line {_line(error, path)}: there is no module {error.name!r}; is it installed?"
        ) from None
    except Exception as error:
        raise JobError(f"{path}, line {_line(error, path)}: {type(error).__name__}: {error}") from error
    _send_by_value(module, path.parent)
    return module


def _line(error: BaseException, path: Path) -> int:
    """The line of the job file that led to an error: the last one, if it calls itself."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] or 0 if lines else 0


def _send_by_value(module: ModuleType, directory: Path) -> None:
    """Have functions of the job file, and of modules beside it, travel to workers as they are: those have no copy."""
    from pyspark import cloudpickle

    for each in (module, *list(sys.modules.values())):
        file = getattr(each, "__file__", None)
        if "." in each.__name__ or file is None:
            continue
        place = Path(file).parent.parent if hasattr(each, "__path__") else Path(file).parent
        if place == directory:
            cloudpickle.register_pickle_by_value(each)  # type: ignore[no-untyped-call]  # Spark's lack
