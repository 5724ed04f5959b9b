"""A folder imports only from rows below its own (docs/ARCHITECTURE.md), and each library has one door."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence, Set
from typing import Final

import pytest

from tests.architecture.source_tree import Import, Module, imports, modules, sample

# Top row first.  Folders of one row do not import each other.
ROWS: Final = (
    {"cli"},
    {"demo"},
    {"testing"},
    {"console", "spark"},
    {"mirror"},
    {"audit"},
    {
        "admin",
        "aio",
        "dead_letters",
        "errors",
        "interceptors",
        "lost_offsets",
        "opentelemetry",
        "registry",
        "statistics",
    },
    {"client", "broker", "maintenance"},
    {"groups", "consumers", "transactions", "replication", "coordination", "storage"},
    {"security"},
    {"protocol", "records"},
    {"observe"},
    {"runtime"},
    {"model"},
)
RANK: Final = {area: len(ROWS) - row for row, areas in enumerate(ROWS) for area in areas}

# The same for the rooms of the two largest folders; a file beside the rooms is a row member by its own name.
ROOM_ROWS: Final = {
    "broker": (
        {"processes", "server"},
        {"broker", "late_imports"},
        {"assembly"},
        {"monitoring"},
        {"async_requests", "callback_requests", "router"},
        {"authorization", "admin_changes"},
        {"handlers"},
        {"fetching", "groups", "producing", "topics", "transactions"},
        {"replicas", "shards"},
        {"context", "events", "live_brokers", "upkeep"},
        {"child_processes", "partitions", "security"},
        {"net", "tree"},
        {"quotas"},
    ),
    "client": (
        {"topic_log"},
        {"admin", "streams"},
        {"membership", "producing"},
        {"consumer_registry"},
        {"fetching", "groups"},
        {"wire"},
    ),
}

_NETWORK: Final = (
    "audit.aio_producers",
    "runtime",
    "broker",
    "client",
    "console",
    "registry",
    "spark.planner_start",
    "testing",
    "coordination.embedded",
    "coordination.local",
    "coordination.session_keeper",
    "coordination.zookeeper",
)
# A library, and the only parts of `ottla` that may import it.
DOORS: Final = {
    "asyncio": _NETWORK,
    "avro": ("registry.avro_format",),
    "socket": _NETWORK,
    "click": ("cli",),
    "cramjam": ("records.compression",),
    "cryptography": ("client.wire.security.certificate_store", "security.issuing", "security.join_token"),
    "crc32c": ("records.checksum",),
    "jwt": ("broker.security.bearer_tokens",),
    "kazoo": ("coordination.zookeeper",),
    "kio": ("protocol",),
    "opentelemetry": ("opentelemetry",),
    "pyspark": ("demo.jobs", "spark", "testing.plugin"),
    "re2": ("groups.subscription_pattern",),
    "sqlite3": ("coordination.embedded",),
    "uvicorn": ("registry.server",),
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


def _is_offence_of_rooms(found: Import, rows: Sequence[Set[str]]) -> bool:
    area, _, importer = found.importer.name.removeprefix("ottla.").partition(".")
    imported = found.imported.removeprefix(f"ottla.{area}.")
    if not importer or imported == found.imported:
        return False
    rank = {room: len(rows) - row for row, rooms in enumerate(rows) for room in rooms}
    rooms = importer.split(".")[0], imported.split(".")[0]
    return rooms[0] != rooms[1] and rank[rooms[0]] <= rank[rooms[1]]


def _may_import(module: Module, doors: tuple[str, ...]) -> bool:
    below = module.name.removeprefix("ottla.")
    return any(below == door or below.startswith(door + ".") for door in doors)


def _library_offences(module: Module, library: str) -> list[str]:
    return [
        str(found)
        for found in imports(module)
        if found.imported.split(".")[0] == library and not _may_import(module, DOORS[library])
    ]


def test_every_folder_has_a_row() -> None:
    areas = {module.area for module in modules()} - {"", "__main__"}
    assert areas <= RANK.keys()


def test_lower_rows_never_import_higher_ones_and_a_row_never_itself() -> None:
    offences = [str(found) for module in modules() for found in imports(module) if _is_offence(found)]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize("area", ROOM_ROWS)
def test_rooms_of_a_folder_import_only_rooms_of_lower_rows(area: str) -> None:
    inside = [module for module in modules() if module.area == area]
    offences = [
        str(found) for module in inside for found in imports(module) if _is_offence_of_rooms(found, ROOM_ROWS[area])
    ]
    assert not offences, "\n".join(offences)


def test_rule_of_rooms_finds_an_offence() -> None:
    rows = ROOM_ROWS["broker"]
    partition = sample("ottla.broker.partitions.sample", "")
    context = sample("ottla.broker.context", "")
    assert _is_offence_of_rooms(Import(partition, "ottla.broker.fetching.fetch_plans", 1), rows)
    assert _is_offence_of_rooms(Import(partition, "ottla.broker.context", 1), rows)
    assert _is_offence_of_rooms(Import(context, "ottla.broker.upkeep.flusher", 1), rows)
    assert not _is_offence_of_rooms(Import(partition, "ottla.broker.net.limits", 1), rows)
    assert not _is_offence_of_rooms(Import(partition, "ottla.broker.partitions.partition", 1), rows)
    assert not _is_offence_of_rooms(Import(partition, "ottla.model.errors", 1), rows)


@pytest.mark.parametrize("library", DOORS)
def test_library_is_imported_only_behind_its_door(library: str) -> None:
    offences = [offence for module in modules() for offence in _library_offences(module, library)]
    assert not offences, "\n".join(offences)


def test_rule_of_rows_finds_an_offence() -> None:
    model = next(module for module in modules() if module.name == "ottla.model.errors")
    storage = next(module for module in modules() if module.name == "ottla.storage")
    assert _is_offence(Import(model, "ottla.runtime.clock", 1))
    assert _is_offence(Import(storage, "ottla.coordination.tree", 1))
    assert not _is_offence(Import(storage, "ottla.model.errors", 1))
    assert not _is_offence(Import(storage, "ottla.storage.log.log", 1))


@pytest.mark.parametrize(
    ("name", "source", "library"),
    [
        ("ottla.coordination.sample", "import asyncio", "asyncio"),
        ("ottla.coordination.embeddedness", "import asyncio", "asyncio"),
        ("ottla.storage.sample", "def late():\n    from socket import socket", "socket"),
        ("ottla.coordination.embedded.sample", "import kazoo.client", "kazoo"),
        ("ottla.broker.sample", "from kio.schema import types", "kio"),
        ("ottla.client.sample", "import pyspark.sql", "pyspark"),
        ("ottla.records.record", "import cramjam", "cramjam"),
        ("ottla.storage.sample", "import sqlite3", "sqlite3"),
    ],
)
def test_rule_of_doors_finds_an_offence(name: str, source: str, library: str) -> None:
    assert _library_offences(sample(name, source), library)


@pytest.mark.parametrize(
    ("name", "source", "library"),
    [
        ("ottla.coordination.embedded.sample", "import asyncio", "asyncio"),
        ("ottla.spark.sample", "from pyspark.sql import datasource", "pyspark"),
        ("ottla.storage.sample", "import asynciox", "asyncio"),
    ],
)
def test_rule_of_doors_lets_through_what_has_one(name: str, source: str, library: str) -> None:
    assert not _library_offences(sample(name, source), library)


def test_rule_of_rows_sees_imports_inside_of_functions() -> None:
    late = sample("ottla.records.sample", "def late():\n    from ottla.storage.log.log import Log")
    assert [_is_offence(found) for found in imports(late)] == [True]


_HEAVY: Final = {"asyncio", "kazoo", "kio", "numpy", "pyarrow", "pyspark", "sqlite3", "uvloop"}


@pytest.mark.parametrize(
    ("start", "forbidden"),
    [
        ("import ottla", _HEAVY | {"click"}),
        ("from ottla.cli import main", _HEAVY | {"click"}),
        (
            "import sys; sys.argv = ['ottla', '--help']\n"
            "from ottla.cli import main\ntry: main()\nexcept SystemExit: pass",
            _HEAVY,
        ),
    ],
    ids=["import", "command", "help"],
)
def test_package_and_its_help_import_nothing_heavy(start: str, forbidden: set[str]) -> None:
    code = f"{start}\nimport sys, json; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    imported = set(json.loads(found.stdout.splitlines()[-1]))
    assert "ottla" in imported
    assert not imported & forbidden
