"""Packages that come with extras, and that a machine may lack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from ottla.model.errors import ConfigError

# The modules of the extra `spark`, and those of `lake` and `iceberg`, which bring them along.
SPARK: Final = ("pyspark", "pyarrow", "pandas", "numpy")
LAKE: Final = (*SPARK, "deltalake")
ICEBERG: Final = (*SPARK, "pyiceberg")
# The modules of the extra `schemas`.
SCHEMAS: Final = ("avro", "fastavro", "google.protobuf", "grpc_tools", "jsonschema", "uvicorn")

# The modules of the extra `security`.
TOKENS: Final = ("jwt", "cryptography")

_EXTRAS: Final = {
    **dict.fromkeys(SPARK, "spark"),
    **dict.fromkeys(SCHEMAS, "schemas"),
    **dict.fromkeys(TOKENS, "security"),
    "deltalake": "lake",
    "pyiceberg": "iceberg",
    "opentelemetry": "opentelemetry",
}


@contextmanager
def naming_what_to_install(extra: str | None = None) -> Iterator[None]:
    """Around imports of what extras bring: the error for one that is not installed has the command that installs it.

    `extra`: the one that brings all of them, where a module is in several.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        hint = hint_for_missing(missing.name)
        if hint is None or hint in str(missing):
            raise
        if extra is not None:
            hint = _install_command(extra)
        raise ModuleNotFoundError(f"{missing}: {hint}", name=missing.name) from missing


def hint_for_missing(module: str | None) -> str | None:
    """What to install for a module that an import has not found; None for one that no extra brings."""
    words = (module or "").split(".")
    found = (_EXTRAS.get(".".join(words[: index + 1])) for index in range(len(words)))
    return next((_install_command(extra) for extra in found if extra is not None), None)


def require_modules(what: str, modules: Iterable[str], extra: str) -> None:
    """Raises `ConfigError`, which says what to install; imports nothing of them."""
    for module in modules:
        if not _is_installed(module):
            raise ConfigError(f"{what} needs the module {module}", hint=_install_command(extra))


def _install_command(extra: str) -> str:
    # Only errors need it.
    from ottla.runtime.installation import install_command

    return install_command(extra)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # A part of a package that is not there.
        return False
