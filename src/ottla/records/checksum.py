"""CRC-32C, and the check of a whole batch."""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final

from ottla.records.header import ATTRIBUTES_AT, CRC, CRC_AT


def _load_extension() -> ModuleType:
    """The extension of the package `crc32c`, without the package.

    Its `__init__` reads its own version from the installed packages and has a command line: 45 modules more, which were
    3 MB of every broker's memory and 60 ms of its start.
    """
    package = find_spec("crc32c")
    found = None
    if package is not None and package.submodule_search_locations is not None:
        found = PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if found is None or found.loader is None:
        import crc32c

        return crc32c
    extension = module_from_spec(found)
    found.loader.exec_module(extension)
    return extension


if TYPE_CHECKING:
    from crc32c import crc32c as _crc32c
else:
    _crc32c = _load_extension().crc32c

crc32c: Final = _crc32c


# A release and a wait for the interpreter would take longer than the sum of what a client sends at once.
_KEEPS_INTERPRETER: Final = 0


def batch_crc(batch: bytearray) -> int:
    """The checksum that belongs into a batch's header."""
    return int(_crc32c(memoryview(batch)[ATTRIBUTES_AT:], gil_release_mode=_KEEPS_INTERPRETER))


def has_valid_crc(batch: memoryview) -> bool:
    """Whether the checksum in the batch's header matches its bytes from `attributes` to the end."""
    return bool(_crc32c(batch[ATTRIBUTES_AT:]) == CRC.unpack_from(batch, CRC_AT)[0])
