"""Imports that a start does not wait for.

A broker is ready without them, and its first requests need them: so they are imported right after the start, one at a
time on the event loop, with pauses for requests.  A request that comes first imports what it needs itself.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from importlib import import_module
from typing import Final

# Some milliseconds each.
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
)


async def import_late(modules: Sequence[str] = LATE_MODULES) -> None:
    for module in modules:
        await asyncio.sleep(_PAUSE_S)
        import_module(module)
    # As what the start has made, they are there until the end, and no collection walks them.
    gc.freeze()
