"""Imports that a start does not wait for.

A broker is ready without them, and its first requests need them: so they are imported right after the start, one at a
time on the event loop, with pauses for requests.  A request that comes first imports what it needs itself.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from ottla.observe.events import fields

log = logging.getLogger(__name__)

# Two to nine milliseconds each.
_PAUSE_S: Final = 0.01
# By how early clients need them.  Each comes before those that import it, so that none of the imports has all of them.
LATE_MODULES: Final = (
    "ottla.broker.handlers.metadata",
    "ottla.groups.group_metadata",
    "ottla.groups.consumer.records",
    "ottla.groups.classic.group",
    "ottla.groups.consumer.group",
    "ottla.groups.shard",
    "ottla.broker.handlers.find_coordinator",
    "ottla.broker.handlers.join_group",
    "ottla.transactions.shard",
    # Calls of a transaction that is decided already: they must not be the first to find that a file is gone.
    "ottla.protocol.schemas.write_txn_markers",
    "ottla.protocol.schemas.add_partitions_to_txn",
)


_HINT: Final = "install the package again, and restart the broker: requests that need the module fail"


async def import_late(modules: Sequence[str] = LATE_MODULES) -> None:
    """Import them one after another; one that cannot be imported is logged."""
    for module in modules:
        await asyncio.sleep(_PAUSE_S)
        try:
            import_module(module)
        except Exception:
            # Half an installation, as while it is upgraded: what is imported serves on.
            log.exception("broker.import_failed", extra=fields(module=module, hint=_HINT))
    # As what the start has made, they are there until the end, and no collection walks them.
    gc.freeze()
