"""Which logs of other brokers can be used: only they know, so they are queried (DescribeLogDirs names no others)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.net.limits import MIB
from ottla.broker.replicas.peer_connection import PeerAddress, PeerConnection, PeerError
from ottla.model.errors import WireError
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.schemas.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

_VERSION: Final = 4
_RESPONSE_BYTES_MAX: Final = 64 * MIB


class RemoteLogs:
    """`address_of` returns the address of a live broker."""

    def __init__(self, node_id: NodeId, address_of: Callable[[NodeId], tuple[str, int] | None]) -> None:
        self._client_id = f"ottla-elections-{node_id}"
        self._address_of = address_of

    async def usable(
        self, node_id: NodeId, wanted: Sequence[TopicPartition], timeout_ms: int
    ) -> frozenset[TopicPartition] | None:
        """Those of which the broker has a log that takes appends; None when it does not answer."""
        address = self._address_of(node_id)
        if address is None:
            return None
        by_topic: dict[str, list[int]] = {}
        for name, index in wanted:
            by_topic.setdefault(name, []).append(index)
        topics = [DescribableLogDirTopic(name, indexes) for name, indexes in by_topic.items()]
        body = encode_request(ApiKey.DESCRIBE_LOG_DIRS, _VERSION, DescribeLogDirsRequest(topics))
        try:
            peer = await PeerConnection.open(
                PeerAddress(*address), self._client_id, timeout_ms=timeout_ms, response_bytes_max=_RESPONSE_BYTES_MAX
            )
            try:
                answer = await peer.call(ApiKey.DESCRIBE_LOG_DIRS, _VERSION, body, timeout_ms)
                response = decode_response(ApiKey.DESCRIBE_LOG_DIRS, _VERSION, answer)
            finally:
                peer.close()
        except (PeerError, WireError):
            return None
        assert isinstance(response, DescribeLogDirsResponse)
        return frozenset(
            TopicPartition(topic.name, partition.partition_index)
            for result in response.results
            for topic in result.topics
            for partition in topic.partitions
        )
