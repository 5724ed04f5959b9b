"""What a broker and a test's process import before a client can connect.

Each module costs a start about half a millisecond.  Nothing here measures time: a module of these lists is needed by
few brokers, or by none until its first requests, and was imported at each start before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

_BROKER: Final = """
import asyncio, json, os, signal, sys
from ottla.broker.broker import Broker
from ottla.broker.late_imports import LATE_MODULES
from ottla.broker.server import serve
from ottla.cli.serve import serve_options
from ottla.model.listener import parse_flag
from ottla.model.setting_sources import resolve
from ottla.runtime.event_loop import run

def on_started(broker: Broker) -> None:
    print(json.dumps(sorted(sys.modules)))
    end_when_complete()

def end_when_complete() -> None:
    if sys.modules.keys() >= set(LATE_MODULES):
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        asyncio.get_running_loop().call_later(0.01, end_when_complete)

settings = resolve([])[0]
options = serve_options(settings, data_dir=sys.argv[1], listen=(parse_flag("127.0.0.1:0"),))
run(serve(options, on_started=on_started))
"""
# Of a standalone broker without TLS, logins, rules, an admin listener or a schema registry.
_LATE: Final = frozenset(
    {
        "cryptography",
        "email",
        "http.client",
        "jwt",
        "kazoo",
        "ottla.broker.authorization",
        "ottla.broker.monitoring",
        "ottla.broker.replicas.cluster_part",
        "ottla.broker.security",
        "ottla.client",
        "ottla.groups.consumer.records",
        "ottla.groups.group_metadata",
        "ottla.groups.shard",
        "ottla.protocol.schemas.add_partitions_to_txn",
        "ottla.protocol.schemas.join_group",
        "ottla.protocol.schemas.sasl_authenticate",
        "ottla.protocol.schemas.write_txn_markers",
        "ottla.registry",
        "ottla.runtime.installation",
        "ottla.security.sasl_server",
        "ottla.security.scram",
        "ottla.storage.compaction.cleaner",
        "ottla.transactions.shard",
        "tempfile",
        "tomllib",
        "typing_extensions",
        "urllib.request",
    }
)


def _imported(program: str, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    found: list[str] = json.loads(done.stdout)
    return set(found)


def test_broker_is_ready_without_what_few_brokers_need(tmp_path: Path) -> None:
    """Its process ends once it has imported the rest, which first requests need."""
    imported = _imported(_BROKER, str(tmp_path / "data"))
    assert {"ottla.broker.handlers.produce", "ottla.broker.handlers.fetch", "sqlite3"} <= imported
    assert not imported & _LATE


@pytest.mark.parametrize(
    ("module", "late"),
    [
        ("ottla.testing.controlled.cluster", {"asyncio", "ottla.client.admin", "ottla.testing.zookeeper", "sqlite3"}),
        ("ottla.testing.namespace", {"asyncio", "ottla.broker.broker", "sqlite3", "urllib.request"}),
    ],
)
def test_process_of_a_test_imports_no_broker(module: str, late: set[str]) -> None:
    """The cluster's processes start before this one imports the client."""
    imported = _imported(f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))")
    assert module in imported
    assert not imported & (late | {"http.client", "kazoo", "uvloop"})
