"""What workers run before they can import this package: pickled by value, so one without it can say what is missing.

Nothing here may refer to other modules of the package.
"""

from __future__ import annotations

import pickle
import sys

from pyspark import cloudpickle


def unpack(payload: bytes) -> object:
    """The pickled `(class, arguments)` as an object.

    Raises ModuleNotFoundError that says how a worker gets what it lacks.
    """
    import platform
    import sys

    from pyspark import cloudpickle

    try:
        kind, arguments = cloudpickle.loads(payload)
    except ModuleNotFoundError as error:
        package = (error.name or "ottla").partition(".")[0]
        raise ModuleNotFoundError(
            f"this worker has no Python package {package!r} ({platform.node()}, {sys.executable}). "
            "Ship Ottla and what it needs with the job (spark-submit --archives), or install 'ottla[spark]' on every "
            "worker. addPyFile alone does not do: packages with compiled parts are not imported from a zip file",
            name=error.name,
            path=error.path,
        ) from None
    made: object = kind(*arguments)
    return made


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class Shipped:
    """What runs in workers, a reader or a sink: there it is made anew with the arguments that `shipped` returns."""

    def shipped(self) -> tuple[object, ...]:
        raise NotImplementedError

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return unpack, (pickle.dumps((type(self), self.shipped())),)
