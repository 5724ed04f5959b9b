"""Producer ids: unique for the life of the cluster, allocated from blocks that brokers claim in the tree.

A block is claimed before its first id is used, so a crash skips ids but never allocates one twice (the idea of KIP-730;
the path and the content of the node are those of Kafka's ZooKeeper mode).
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from ottla.coordination.layout import PRODUCER_ID_BLOCK
from ottla.coordination.node_json import Fields, NodeDamaged, encode
from ottla.coordination.tree import BadVersion, ConnectionLoss, NodeExists, NoNode, Tree
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId, ProducerId
from ottla.runtime.mutex import Mutex

BLOCK_IDS_COUNT: Final = 1_000
PRODUCER_ID_MAX: Final = 2**63 - 1


class ProducerIdsExhausted(OttlaError):
    error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    hint = "a new cluster has all of them again"


class _Claimed(NamedTuple):
    """The last claimed block; `end` is exclusive."""

    end: int
    version: int | None


class ProducerIdBlocks:
    """This broker's supply of producer ids."""

    def __init__(self, tree: Tree, node_id: NodeId) -> None:
        self._tree = tree
        self._node_id = node_id
        self._supply: deque[int] = deque()
        self._first = 0
        self._claiming = Mutex()

    def begin_at(self, producer_id: int) -> None:
        """Give no id below this one: above those in the logs, which are newer than the tree if that was restored."""
        self._first = max(self._first, producer_id)
        while self._supply and self._supply[0] < self._first:
            self._supply.popleft()

    async def next(self) -> ProducerId:
        """A new id.  Waits for the tree once in a thousand calls."""
        if not self._supply:
            async with self._claiming:  # one claim for all waiting calls
                if not self._supply:
                    self._supply.extend(await self._claim_block())
                return ProducerId(self._supply.popleft())
        return ProducerId(self._supply.popleft())

    async def _claim_block(self) -> range:
        while True:
            last = await self._last_claimed()
            first = max(last.end, self._first)
            if first > PRODUCER_ID_MAX - BLOCK_IDS_COUNT:
                raise ProducerIdsExhausted(f"all producer ids up to {first - 1} are used")
            block = range(first, first + BLOCK_IDS_COUNT)
            try:
                if last.version is None:
                    await self._tree.create(PRODUCER_ID_BLOCK, self._encode(block))
                else:
                    await self._tree.set(PRODUCER_ID_BLOCK, self._encode(block), last.version)
            except (BadVersion, NodeExists, NoNode, ConnectionLoss):
                await self._tree.sync()  # another broker's, or of unknown outcome: then it stays unused
                continue
            return block

    async def _last_claimed(self) -> _Claimed:
        try:
            node = await self._tree.get(PRODUCER_ID_BLOCK)
        except NoNode:
            return _Claimed(0, None)
        last = Fields.parse(PRODUCER_ID_BLOCK, node.data).text("block_end")
        if not (last.isascii() and last.isdigit()):
            raise NodeDamaged(PRODUCER_ID_BLOCK, f"'block_end' should be a number, not {last!r}")
        return _Claimed(int(last) + 1, node.stat.version)

    def _encode(self, block: range) -> bytes:
        # Text, and the end inclusive: as Kafka wrote it.
        return encode(
            {"version": 1, "broker": self._node_id, "block_start": str(block[0]), "block_end": str(block[-1])}
        )
