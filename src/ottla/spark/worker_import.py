"""What workers run before they can import this package, or what it needs: they say what is missing, and how it comes.

`unpack` is pickled by value, and may refer to nothing else of this package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from pyspark import cloudpickle
from pyspark.worker_util import pickleSer

T = TypeVar("T")
R = TypeVar("R")


def unpack(payload: bytes) -> object:
    """What was pickled.  Raises ModuleNotFoundError that says how a worker gets what it lacks."""
    import platform
    import sys

    from pyspark import cloudpickle

    try:
        unpacked: object = cloudpickle.loads(payload)
    except ModuleNotFoundError as error:
        package = (error.name or "ottla").partition(".")[0]
        raise ModuleNotFoundError(
            f"this worker has no Python package {package!r} ({platform.node()}, {sys.executable}). "
            "Ship Ottla and what it needs with the job: `ottla spark-archive deps.zip`, then spark-submit "
            "--archives deps.zip#deps --conf spark.executorEnv.PYTHONPATH=deps; or install Ottla with its extra "
            "'spark' on every worker. --py-files and addPyFile do not bring packages with compiled parts",
            name=error.name,
            path=error.path,
        ) from None
    return unpacked


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class Advised:
    """A command for workers, which unpack it with advice."""

    def __init__(self, command: object) -> None:
        self._command = command

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return unpack, (cloudpickle.dumps(self._command),)  # type: ignore[no-untyped-call]


def advised(function: Callable[[T], R]) -> Callable[[T], R]:
    """The function for workers to call, which they unpack with advice.  Here it is not to be called."""
    packed: Any = Advised(function)

    def call(given: T) -> R:
        called: R = packed(given)  # as it was unpacked, the function itself
        return called

    return call


def advise_workers() -> None:
    """In a process that plans for Spark: the functions that it sends to workers carry advice from now on.

    Spark's own function is pickled around ours, and fails first where a worker has no pyarrow.
    """
    if hasattr(pickleSer, "advises"):
        return
    plain: Callable[[object], bytes] = pickleSer.dumps

    def dumps(value: object) -> bytes:
        return plain(Advised(value) if _is_command(value) else value)

    pickleSer.dumps = dumps  # type: ignore[method-assign]
    pickleSer.advises = True  # type: ignore[attr-defined]


def _is_command(value: object) -> bool:
    """A function of PySpark's planners, with the type of its rows."""
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and callable(value[0])
        and str(getattr(value[0], "__module__", "")).startswith("pyspark.sql.worker.")
    )
