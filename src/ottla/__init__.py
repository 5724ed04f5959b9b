"""Ottla: a Kafka broker that you can pip install, and the pipeline around it.

Importing this package starts nothing and imports neither pyspark nor kazoo; the client is imported when first used.

Message     what a consumer gets     ottla.client.messages
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.client.messages import Message

__all__ = ["Message", "__version__"]

__version__ = "0.1.0"

# Where the public names are.
_HOMES: Final = {"Message": "ottla.client.messages"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
