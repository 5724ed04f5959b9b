"""A folder imports only from rows below its own (docs/ARCHITECTURE.md), and each library has one door."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

import pytest

from tests.architecture.source_tree import Import, Module, imports, modules

# Top row first.  Folders of one row do not import each other.
ROWS: Final = (
    {"cli"},
    {"console", "spark", "testing"},
    {"registry"},
    {"client", "broker"},
    {"groups", "transactions", "replication", "coordination", "storage", "security"},
    {"protocol", "records"},
    {"observe"},
    {"runtime"},
    {"model"},
)
RANK: Final = {area: len(ROWS) - row for row, areas in enumerate(ROWS) for area in areas}

_NETWORK: Final = (
    "runtime",
    "broker",
    "client",
    "console",
    "registry",
    "testing",
    "coordination.embedded",
    "coordination.zookeeper",
)
# A library, and the only parts of `ottla` that may import it.
DOORS: Final = {
    "asyncio": _NETWORK,
    "socket": _NETWORK,
    "click": ("cli",),
    "cramjam": ("records.compression",),
    "crc32c": ("records.checksum",),
    "kazoo": ("coordination.zookeeper",),
    "kio": ("protocol",),
    "pyspark": ("spark",),
    "sqlite3": ("coordination.embedded",),
    "uvloop": ("runtime.event_loop",),
}


def _is_offence(found: Import) -> bool:
    parts = found.imported.split(".")
    if parts[0] != "ottla" or len(parts) < 2 or found.importer.area == parts[1]:
        return False
    # The package itself (its version, the start of `python -m ottla`) stands outside of the rows.
    if found.importer.area in {"", "__main__"}:
        return False
    return RANK[found.importer.area] <= RANK.get(parts[1], 0)


def _may_import(module: Module, doors: tuple[str, ...]) -> bool:
    below = module.name.removeprefix("ottla.")
    return any(below == door or below.startswith(door + ".") for door in doors)


def test_every_folder_has_a_row() -> None:
    areas = {module.area for module in modules()} - {"", "__main__"}
    assert areas <= RANK.keys()


def test_lower_rows_never_import_higher_ones_and_a_row_never_itself() -> None:
    offences = [str(found) for module in modules() for found in imports(module) if _is_offence(found)]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize("library", DOORS)
def test_library_is_imported_only_behind_its_door(library: str) -> None:
    offences = [
        str(found)
        for module in modules()
        for found in imports(module)
        if found.imported.split(".")[0] == library and not _may_import(module, DOORS[library])
    ]
    assert not offences, "\n".join(offences)


def test_rule_of_rows_finds_an_offence() -> None:
    model = next(module for module in modules() if module.name == "ottla.model.errors")
    storage = next(module for module in modules() if module.name == "ottla.storage")
    assert _is_offence(Import(model, "ottla.runtime.clock", 1))
    assert _is_offence(Import(storage, "ottla.coordination.tree", 1))
    assert not _is_offence(Import(storage, "ottla.model.errors", 1))
    assert not _is_offence(Import(storage, "ottla.storage.log", 1))


@pytest.mark.parametrize("start", ["import ottla", "from ottla.cli import main"])
def test_package_imports_nothing_heavy(start: str) -> None:
    code = f"{start}\nimport sys, json; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not set(json.loads(found.stdout)) & {"asyncio", "click", "kazoo", "kio", "numpy", "pyarrow", "pyspark"}
