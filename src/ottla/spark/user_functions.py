"""Functions of users: of a file, as `FILE.py:FUNCTION` names them, and what they raise."""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Callable, Collection
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from pyspark import cloudpickle

from ottla.model.errors import ConfigError, OttlaError
from ottla.model.nearest import nearest_name
from ottla.runtime.installed import hint_for_missing

# Its functions go to Spark's workers by value, so these need not have the file.
_MODULE: Final = "ottla_user_file_"
_NAME_CHARS: Final = 12
# The end of a traceback has the error; its start may be a deep recursion.
_TRACE_CHARS_MAX: Final = 4_000
_IMPORTS: Final = "<frozen importlib"


def load_function(file_and_function: str, noun: str) -> Callable[..., Any]:
    """`jobs/views.py:top_pages`.  Runs the file; `noun`: what the function is.

    Raises `ConfigError` when the file has no such function, or fails: its traceback is a note of the error.
    """
    path_text, _, name = file_and_function.rpartition(":")
    if not path_text or not name.isidentifier():
        raise ConfigError(f"{file_and_function!r} names no {noun}", hint="write FILE.py:function")
    path = Path(path_text)
    module_name = _MODULE + hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:_NAME_CHARS]
    spec = spec_from_file_location(module_name, path, loader=SourceFileLoader(module_name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module_name] = module
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="correct the file") from error
    except FileNotFoundError as error:
        if error.filename != str(path):
            raise _failed(path, error) from error
        raise ConfigError(f"there is no file {path}", hint="write FILE.py:function") from error
    except OttlaError:
        raise
    except Exception as error:
        raise _failed(path, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        own = [each for each, value in vars(module).items() if getattr(value, "__module__", None) == module_name]
        nearest = nearest_name(name, own)
        raise ConfigError(
            f"{path} has no function {name!r}", hint=f"did you mean {nearest}?" if nearest else "it must be a `def`"
        )
    found: Callable[..., Any] = function
    return found


def _failed(path: Path, error: Exception) -> ConfigError:
    hint = hint_for_missing(error.name) if isinstance(error, ModuleNotFoundError) else None
    failed = ConfigError(
        f"{path} fails when it is run: {type(error).__name__}: {error}", hint=hint or "correct the file"
    )
    failed.add_note(trace_of(error, __file__))
    return failed


def trace_of(error: BaseException, *callers: str) -> str:
    """The user's part of a traceback: without the frames of the files that have called the function."""
    found = traceback.TracebackException.from_exception(error)
    found.stack = traceback.StackSummary.from_list([each for each in found.stack if not _is_of(each.filename, callers)])
    return "".join(found.format()).rstrip()[-_TRACE_CHARS_MAX:]


def _is_of(filename: str, callers: Collection[str]) -> bool:
    return filename in callers or filename.startswith(_IMPORTS)
