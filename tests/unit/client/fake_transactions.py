"""The coordinators of a fake cluster's transactions and of its groups' offsets, by the rules of Apache Kafka."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Final

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import KNOWN_VERSIONS, ApiKey
from ottla.protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.schemas.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.schemas.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.schemas.produce import ProduceRequest
from ottla.protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.records.end_marker import EndMarker, build_end_marker, read_end_marker
from ottla.records.header import read_header
from ottla.records.record import decode_batch
from tests.unit.client.fake_cluster import FakeCluster

_IMPLICIT_PRODUCE: Final = 12
_IMPLICIT_END: Final = 5
_IMPLICIT_OFFSETS: Final = 5


@dataclass
class _Transaction:
    """`outcome`: of the last one; None: it is open, or there was none."""

    producer_id: int
    epoch: int = 0
    last_epoch: int = -1
    is_open: bool = False
    outcome: bool | None = None
    partitions: set[TopicPartition] = field(default_factory=set)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)


class FakeTransactions:
    """`is_implicit`: the cluster has finalized the transactions of KIP-890."""

    def __init__(self, cluster: FakeCluster, *, is_implicit: bool) -> None:
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self._cluster = cluster
        self._producer_ids = itertools.count(9000)
        self._known: dict[str, _Transaction] = {}
        cluster.on_transactional = self
        for broker in cluster.brokers.values():
            broker.versions = dict(KNOWN_VERSIONS)
            broker.features = {"transaction.version": 2 if is_implicit else 1}

    def visible(self, partition: TopicPartition) -> list[bytes | None]:
        """What a reader of committed records gets."""
        found: list[bytes | None] = []
        open_values: dict[int, list[bytes | None]] = {}
        for data in self._cluster.partitions[partition].batches:
            batch = memoryview(data)
            header = read_header(batch)
            if header.is_control:
                marker = read_end_marker(batch)
                values = open_values.pop(header.producer_id, [])
                found += values if marker is not None and marker.commits else []
            elif header.is_transactional:
                open_values.setdefault(header.producer_id, []).extend(record.value for record in decode_batch(batch))
            else:
                found += [record.value for record in decode_batch(batch)]
        return found

    def time_out(self, transactional_id: str) -> None:
        """The open transaction is aborted by its coordinator."""
        transaction = self._known[transactional_id]
        self._advance(transaction)
        self._complete(transaction, commits=False)

    def answer(self, version: int, request: object) -> object | None:
        match request:
            case FindCoordinatorRequest():
                broker = self._cluster.brokers[1]
                rows = [
                    Coordinator(key, broker.node_id, broker.address.host, broker.address.port)
                    for key in request.coordinator_keys
                ]
                return FindCoordinatorResponse(coordinators=rows)
            case InitProducerIdRequest():
                return None if request.transactional_id is None else self._init(request.transactional_id, request)
            case AddPartitionsToTxnRequest():
                return self._add_partitions(request)
            case AddOffsetsToTxnRequest():
                code = self._open(request.transactional_id, request.producer_id, request.producer_epoch)
                return AddOffsetsToTxnResponse(0, code)
            case TxnOffsetCommitRequest():
                return self._commit_offsets(version, request)
            case EndTxnRequest():
                return self._end(version, request)
        return None

    def check_produce(self, version: int, request: ProduceRequest, partition: TopicPartition) -> ErrorCode:
        """Of a transactional batch for this partition, which is added where the version does that."""
        if request.transactional_id is None:
            return ErrorCode.NONE
        transaction = self._known[request.transactional_id]
        for topic in request.topic_data:
            for data in topic.partition_data:
                assert data.records is not None
                if read_header(memoryview(data.records)).producer_epoch != transaction.epoch:
                    return ErrorCode.INVALID_PRODUCER_EPOCH
        if version >= _IMPLICIT_PRODUCE:
            transaction.is_open = True
            transaction.partitions.add(partition)
        return ErrorCode.NONE if partition in transaction.partitions else ErrorCode.INVALID_TXN_STATE

    def _init(self, transactional_id: str, request: InitProducerIdRequest) -> InitProducerIdResponse:
        known = self._known.get(transactional_id)
        if known is None:
            known = self._known[transactional_id] = _Transaction(next(self._producer_ids))
            return InitProducerIdResponse(0, 0, known.producer_id, known.epoch)
        if request.producer_id >= 0 and request.producer_epoch == known.last_epoch:
            return InitProducerIdResponse(0, 0, known.producer_id, known.epoch)
        if request.producer_id >= 0 and (request.producer_id, request.producer_epoch) != (
            known.producer_id,
            known.epoch,
        ):
            return InitProducerIdResponse(0, ErrorCode.PRODUCER_FENCED)
        self._advance(known)
        if request.producer_id < 0:
            known.last_epoch = -1
        if known.is_open:
            self._complete(known, commits=False)
        known.outcome = None
        return InitProducerIdResponse(0, 0, known.producer_id, known.epoch)

    def _open(self, transactional_id: str, producer_id: int, epoch: int) -> ErrorCode:
        known = self._known[transactional_id]
        if producer_id != known.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if epoch != known.epoch:
            return ErrorCode.PRODUCER_FENCED
        known.is_open, known.outcome = True, None
        return ErrorCode.NONE

    def _add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        code = self._open(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        response = AddPartitionsToTxnResponse()
        for topic in request.v3_and_below_topics:
            refused = {index: self._refusal(TopicPartition(topic.name, index)) for index in topic.partitions}
            rows = [AddPartitionsToTxnPartitionResult(index, code or refused[index]) for index in topic.partitions]
            response.results_by_topic_v3_and_below.append(AddPartitionsToTxnTopicResult(topic.name, rows))
            if not code and not any(refused.values()):
                known = self._known[request.v3_and_below_transactional_id]
                known.partitions |= {TopicPartition(topic.name, index) for index in topic.partitions}
        return response

    def _refusal(self, partition: TopicPartition) -> ErrorCode:
        error_of = self._cluster.brokers[1].error_of
        return error_of(ApiKey.ADD_PARTITIONS_TO_TXN, partition) or ErrorCode.NONE

    def _commit_offsets(self, version: int, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        known = self._known[request.transactional_id]
        code = ErrorCode.NONE
        if request.producer_epoch != known.epoch:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif version >= _IMPLICIT_OFFSETS:
            known.is_open, known.outcome = True, None
        response = TxnOffsetCommitResponse()
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if not code:
                    known.offsets[request.group_id, partition] = row.committed_offset
                rows.append(TxnOffsetCommitResponsePartition(row.partition_index, code))
            response.topics.append(TxnOffsetCommitResponseTopic(topic.name, rows))
        return response

    def _end(self, version: int, request: EndTxnRequest) -> EndTxnResponse:
        known = self._known[request.transactional_id]
        advances = version >= _IMPLICIT_END
        if request.producer_id != known.producer_id:
            return EndTxnResponse(0, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if advances and request.producer_epoch == known.epoch - 1 and known.outcome is not None:
            return self._repeated(known, request.committed)
        if request.producer_epoch != known.epoch:
            return EndTxnResponse(0, ErrorCode.PRODUCER_FENCED)
        if not known.is_open:
            if not advances and known.outcome is request.committed:
                return EndTxnResponse()
            if not advances or request.committed:
                return EndTxnResponse(0, ErrorCode.INVALID_TXN_STATE)
        if advances:
            self._advance(known)
        self._complete(known, commits=request.committed)
        return EndTxnResponse(0, 0, known.producer_id, known.epoch) if advances else EndTxnResponse()

    @staticmethod
    def _repeated(known: _Transaction, commits: bool) -> EndTxnResponse:
        if known.outcome is commits:
            return EndTxnResponse(0, 0, known.producer_id, known.epoch)
        return EndTxnResponse(0, ErrorCode.INVALID_TXN_STATE)

    @staticmethod
    def _advance(known: _Transaction) -> None:
        known.last_epoch = known.epoch
        known.epoch += 1

    def _complete(self, known: _Transaction, *, commits: bool) -> None:
        for partition in sorted(known.partitions):
            marker = build_end_marker(EndMarker(commits, 0), known.producer_id, known.epoch, 0)
            self._cluster.partitions[partition].append_marker(marker)
        if commits:
            self.committed.update(known.offsets)
        known.partitions.clear()
        known.offsets.clear()
        known.is_open, known.outcome = False, commits
