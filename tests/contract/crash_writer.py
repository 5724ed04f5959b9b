"""Writes to a tree until it is killed, and prints a line for each acknowledged write.

Line: path, version, mzxid.  Eight writers at once, so that commits carry several writes.  Every fourth write is an
ephemeral node: its change id must not be repeated, although the node itself may not survive.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.local.backend import LocalBackend
from ottla.coordination.tree import CreateNode, SetNode, Tree
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.runtime.event_loop import run
from tests.contract.tree_backends import local_tree

WRITERS_COUNT = 8
# Short: a killed writer's ephemeral nodes are deleted after it.
SESSION_TIMEOUT_MS = 2_000


def say(line: str) -> None:
    os.write(1, (line + "\n").encode())


async def write_for_ever(tree: Tree, writer: int) -> None:
    path = f"/writer-{writer}"
    await tree.create(path)
    number = 0
    while True:
        number += 1
        ephemeral = number % 4 == 0
        await tree.multi([CreateNode(f"{path}/{number}", b"x" * 50, ephemeral), SetNode(path, str(number).encode())])
        for written in (f"{path}/{number}", path):
            node = await tree.get(written)
            kind = "ephemeral" if node.stat.ephemeral_owner else "persistent"
            say(f"{written} {node.stat.version} {node.stat.mzxid} {kind}")


async def connected(kind: str, place: str, stack: AsyncExitStack) -> Tree:
    if kind == "zookeeper":
        return await ZooKeeperBackend(place, session_timeout_ms=SESSION_TIMEOUT_MS).connect()
    if kind == "local":
        # The server of the tree is in this process: it is killed, too.
        path = await stack.enter_async_context(local_tree(Path(place)))
        tree: Tree = await LocalBackend(path, session_timeout_ms=SESSION_TIMEOUT_MS).connect()
    else:
        tree = await (await EmbeddedBackend.open(place)).connect()
    say(f"session {tree.session_id}")  # a change id like others
    return tree


async def main(kind: str, place: str) -> None:
    async with AsyncExitStack() as stack:
        tree = await connected(kind, place, stack)
        await asyncio.gather(*(write_for_ever(tree, writer) for writer in range(WRITERS_COUNT)))


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2]))
