"""TxnOffsetCommit over the wire's bytes: which version queries what, and the codes that each one gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from ottla.broker.handlers.offsets_to_commit import OFFSETS_OF_BATCH
from ottla.model.error_code import ErrorCode
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition
from ottla.protocol.api import KNOWN_VERSIONS, ApiKey
from ottla.protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from ottla.protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.transactions.commands import AddPartitions, VerifyPartitions
from ottla.transactions.end_markers import EndMarkers
from tests.unit.broker.handlers.small_broker import SmallBroker, codes

GROUP: Final = "g"
OFFSETS_PARTITIONS: Final = 2
PRODUCER_ID: Final = 77
LOWEST, HIGHEST = KNOWN_VERSIONS[ApiKey.TXN_OFFSET_COMMIT]
VERSIONS: Final = range(LOWEST, HIGHEST + 1)
NONE, ABORTABLE = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE
UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Verifier:
    """The transactions' coordinator, which gives one answer to all."""

    def __init__(self, error: ErrorCode = NONE) -> None:
        self.error = error
        self.before_answer: Callable[[], None] = lambda: None
        self.wanted: list[AddPartitions | VerifyPartitions] = []

    def verify(self, wanted: AddPartitions | VerifyPartitions, reply: Callable[[ErrorCode], None]) -> None:
        self.wanted.append(wanted)
        self.before_answer()
        reply(self.error)


@pytest.fixture
def verifier() -> Verifier:
    return Verifier()


@pytest.fixture
def broker(verifier: Verifier) -> SmallBroker:
    made = SmallBroker(group_initial_rebalance_delay_ms="0")
    made.verifier = verifier
    made.add_topic("t", 2)
    made.add_topic(OFFSETS_TOPIC, OFFSETS_PARTITIONS)
    return made


def request_of(*indexes: int, offset: int = 9, epoch: int = 0, group_id: str = GROUP) -> TxnOffsetCommitRequest:
    partitions = [TxnOffsetCommitRequestPartition(index, offset) for index in indexes]
    topics = [TxnOffsetCommitRequestTopic("t", partitions)]
    return TxnOffsetCommitRequest("tx", group_id, PRODUCER_ID, epoch, topics=topics)


async def commit(broker: SmallBroker, request: TxnOffsetCommitRequest, version: int = 3) -> list[int]:
    answer = await broker.ask(ApiKey.TXN_OFFSET_COMMIT, version, request, TxnOffsetCommitResponse)
    return codes(answer)


def end(broker: SmallBroker, *, epoch: int = 1) -> None:
    """The marker of a commit; in the epoch of the records, 0, for a producer that keeps it."""
    markers = EndMarkers("tx", PRODUCER_ID, epoch, True, epoch > 0, 0, frozenset())
    done: list[ErrorCode] = []
    broker.groups.write_marker(partition_of(GROUP, OFFSETS_PARTITIONS), markers, done.append)
    assert done == [NONE]


async def stable(broker: SmallBroker) -> list[tuple[int, int]]:
    """Offset and error of each partition of the group."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=None)], require_stable=True)
    answer = await broker.ask(ApiKey.OFFSET_FETCH, 9, request, OffsetFetchResponse)
    topics = answer.groups[0].topics
    return [(each.committed_offset, each.error_code) for topic in topics for each in topic.partitions]


@pytest.mark.parametrize("version", VERSIONS)
async def test_offsets_take_effect_with_the_transaction_in_every_version(broker: SmallBroker, version: int) -> None:
    assert await commit(broker, request_of(0, 1), version) == [0, 0]
    assert await stable(broker) == [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)] * 2
    end(broker)
    assert await stable(broker) == [(9, 0), (9, 0)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_partition_of_the_group_is_verified_before_v5_and_added_from_it_on(
    broker: SmallBroker, verifier: Verifier, version: int
) -> None:
    await commit(broker, request_of(0), version)
    (wanted,) = verifier.wanted
    assert isinstance(wanted, AddPartitions if version >= 5 else VerifyPartitions)
    partition = TopicPartition(OFFSETS_TOPIC, partition_of(GROUP, OFFSETS_PARTITIONS))
    assert wanted[:4] == ("tx", PRODUCER_ID, 0, frozenset({partition}))


async def test_open_transaction_is_not_queried_again(broker: SmallBroker, verifier: Verifier) -> None:
    await commit(broker, request_of(0))
    assert await commit(broker, request_of(1)) == [0]
    assert len(verifier.wanted) == 1


@pytest.mark.parametrize(
    ("error", "before_v4", "v4", "v5"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, ABORTABLE, ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, *[ErrorCode.INVALID_PRODUCER_EPOCH] * 3),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, *[ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3),
        (ErrorCode.CONCURRENT_TRANSACTIONS, UNAVAILABLE, UNAVAILABLE, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, *[UNAVAILABLE] * 3),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *[UNAVAILABLE] * 3),
    ],
)
async def test_refusal_of_the_transactions_coordinator_has_the_code_of_the_version(
    broker: SmallBroker, verifier: Verifier, error: ErrorCode, before_v4: ErrorCode, v4: ErrorCode, v5: ErrorCode
) -> None:
    verifier.error = error
    found = [await commit(broker, request_of(0, 1), version) for version in VERSIONS]
    assert found == [[each] * 2 for each in (*[before_v4] * 4, v4, v5)]
    assert await stable(broker) == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_earlier_epoch_is_no_fenced_producer(broker: SmallBroker, version: int) -> None:
    await commit(broker, request_of(0, epoch=3))
    assert await commit(broker, request_of(0, epoch=2), version) == [ErrorCode.INVALID_PRODUCER_EPOCH]


async def test_transaction_that_ends_before_the_append_is_tried_again(broker: SmallBroker, verifier: Verifier) -> None:
    verifier.before_answer = lambda: end(broker, epoch=0)
    assert await commit(broker, request_of(0), 4) == [UNAVAILABLE]
    assert await stable(broker) == []
    verifier.before_answer = lambda: None
    verifier.error = ErrorCode.INVALID_TXN_STATE
    assert await commit(broker, request_of(0), 4) == [ABORTABLE]


@pytest.mark.parametrize("version", range(3, HIGHEST + 1))
async def test_members_are_checked_from_v3_on(broker: SmallBroker, version: int) -> None:
    await commit(broker, request_of(0), version)
    request = request_of(0)
    request.generation_id, request.member_id = 5, "stranger"
    assert await commit(broker, request, version) == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", VERSIONS)
async def test_group_without_a_name_is_invalid(broker: SmallBroker, verifier: Verifier, version: int) -> None:
    assert await commit(broker, request_of(0, group_id=""), version) == [ErrorCode.INVALID_GROUP_ID]
    assert verifier.wanted == []


async def test_unknown_partitions_are_refused_and_the_others_committed(broker: SmallBroker) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(broker, request_of(7, 1, -1)) == [unknown, 0, unknown]
    end(broker)
    assert await stable(broker) == [(9, 0)]


async def test_request_with_unknown_partitions_only_queries_nothing(broker: SmallBroker, verifier: Verifier) -> None:
    assert await commit(broker, request_of(7)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert verifier.wanted == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_group_of_another_broker_is_sent_there(version: int) -> None:
    broker = SmallBroker()
    broker.verifier = Verifier()
    broker.add_topic("t", 2)
    assert await commit(broker, request_of(0), version) == [ErrorCode.NOT_COORDINATOR]


async def test_many_offsets_are_committed_in_several_batches_and_answered_once(broker: SmallBroker) -> None:
    count = 2 * OFFSETS_OF_BATCH + 1
    broker.add_topic("wide", count)
    partitions = [TxnOffsetCommitRequestPartition(index, 9) for index in range(count)]
    topics = [TxnOffsetCommitRequestTopic("wide", partitions)]
    request = TxnOffsetCommitRequest("tx", GROUP, PRODUCER_ID, 0, topics=topics)
    assert await commit(broker, request) == [0] * count
    end(broker)
    assert await stable(broker) == [(9, 0)] * count
