"""Imports that a start does not wait for.

A broker is ready without them, and its first requests need them: each is imported in its turn of the event loop, right
after the start.  A request that comes first imports what it needs itself.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from importlib import import_module
from typing import Final

# By how early clients need them.  Each comes before those that import it, so that no turn has all of them.
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
        import_module(module)
        # Requests that came meanwhile are served first.
        await asyncio.sleep(0)
    # As what the start has made, they are there until the end, and no collection walks them.
    gc.freeze()
