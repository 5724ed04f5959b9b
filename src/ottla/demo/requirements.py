"""The packages that the demo needs besides the broker's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Final

from ottla.model.errors import OttlaError

# Module and package, as in the extra `demo` and those that it takes in.
NEEDED: Final[Mapping[str, str]] = {
    "confluent_kafka": "confluent-kafka",
    "deltalake": "deltalake",
    "kafka": "kafka-python",
    "numpy": "numpy",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "pyspark": "pyspark",
    "rich": "rich",
}


class MissingPackages(OttlaError):
    """The extra `demo` is not installed."""


def check_requirements(is_installed: Callable[[str], bool] = lambda module: find_spec(module) is not None) -> None:
    """Raises `MissingPackages`, which names all that is missing.  Imports nothing."""
    missing = [package for module, package in NEEDED.items() if not is_installed(module)]
    if missing:
        *others, last = missing
        names = f"{', '.join(others)} and {last}" if others else last
        raise MissingPackages(f"the demo needs {names}: pip install 'ottla[demo]'")
