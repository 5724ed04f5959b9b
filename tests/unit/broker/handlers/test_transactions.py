"""The APIs of transactions: what each answers to right and to wrong calls, by version."""

from __future__ import annotations

import pytest

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.schemas.describe_transactions import (
    DescribedTransactionState,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.protocol.schemas.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.schemas.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.broker.handlers.small_broker import SmallBroker, codes

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
OLD_FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
NO_MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
WRONG_STATE = ErrorCode.INVALID_TXN_STATE
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED
PRODUCER = 1001


def broker() -> SmallBroker:
    made = SmallBroker()
    made.add_topic("orders", 2)
    made.add_topic(OFFSETS_TOPIC, 2)
    made.add_topic(TRANSACTIONS_TOPIC, 2)
    return made


async def init(
    made: SmallBroker, name: str = "t", *, version: int = 4, timeout_ms: int = 60_000, had: tuple[int, int] = (-1, -1)
) -> tuple[int, int, int]:
    request = InitProducerIdRequest(name, timeout_ms, *had)
    given = await made.ask(ApiKey.INIT_PRODUCER_ID, version, request, InitProducerIdResponse)
    return given.error_code, given.producer_id, given.producer_epoch


async def add(
    made: SmallBroker,
    *partitions: int,
    version: int = 3,
    producer: tuple[int, int] = (PRODUCER, 0),
    name: str = "t",
    topic: str = "orders",
) -> list[int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(topic, list(partitions))],
    )
    return codes(await made.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, request, AddPartitionsToTxnResponse))[1:]


async def end(
    made: SmallBroker,
    *,
    commits: bool = True,
    version: int = 3,
    producer: tuple[int, int] = (PRODUCER, 0),
    name: str = "t",
) -> tuple[int, int, int]:
    request = EndTxnRequest(name, *producer, commits)
    ended = await made.ask(ApiKey.END_TXN, version, request, EndTxnResponse)
    # Its markers are written in the next turn of the loop.
    made.loop.turn()
    return ended.error_code, ended.producer_id, ended.producer_epoch


async def describe(made: SmallBroker, name: str = "t") -> DescribedTransactionState:
    request = DescribeTransactionsRequest([name])
    [found] = (
        await made.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request, DescribeTransactionsResponse)
    ).transaction_states
    return found


async def test_each_init_gives_the_next_epoch() -> None:
    made = broker()
    assert await init(made) == (NONE, PRODUCER, 0)
    assert await init(made) == (NONE, PRODUCER, 1)
    assert await init(made, "other") == (NONE, PRODUCER + 1, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_time_out_of_a_transaction_has_bounds(timeout_ms: int) -> None:
    assert (await init(broker(), timeout_ms=timeout_ms))[0] == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize(("version", "code"), [(3, OLD_FENCED), (4, FENCED), (5, FENCED)])
async def test_producer_with_a_former_epoch_does_not_continue(version: int, code: ErrorCode) -> None:
    made = broker()
    await init(made)
    await init(made)
    await init(made)
    assert (await init(made, version=version, had=(PRODUCER, 0)))[0] == code
    assert await init(made, version=version, had=(PRODUCER, 2)) == (NONE, PRODUCER, 3)


async def test_committed_transaction_is_open_then_complete() -> None:
    made = broker()
    await init(made)
    assert await add(made, 0, 1) == [NONE, NONE]
    found = await describe(made)
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", PRODUCER, 0)
    assert [(each.topic, each.partitions) for each in found.topics] == [("orders", [0, 1])]
    assert await end(made) == (NONE, -1, -1)
    found = await describe(made)
    assert (found.transaction_state, found.topics) == ("CompleteCommit", [])
    assert [made.partition("orders", index).log_end_offset for index in (0, 1)] == [1, 1], "a marker in each"


async def test_end_of_the_second_protocol_gives_the_next_epoch() -> None:
    made = broker()
    await init(made)
    await add(made, 0)
    assert await end(made, version=5, commits=False) == (NONE, PRODUCER, 1)
    assert (await describe(made)).transaction_state == "CompleteAbort"
    # It repeats the call, since the answer was lost.
    assert await end(made, version=5, commits=False) == (NONE, PRODUCER, 1)
    assert await end(made, version=5, commits=True) == (WRONG_STATE, -1, -1)


@pytest.mark.parametrize(("version", "code"), [(0, OLD_FENCED), (1, OLD_FENCED), (2, FENCED), (3, FENCED), (4, FENCED)])
async def test_calls_of_a_replaced_producer_are_fenced(version: int, code: ErrorCode) -> None:
    made = broker()
    await init(made)
    await init(made)
    assert (await end(made, version=version))[0] == code
    assert await add(made, 0, version=min(version, 3)) == [code]
    request = AddOffsetsToTxnRequest("t", PRODUCER, 0, "g")
    found = await made.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, request, AddOffsetsToTxnResponse)
    assert found.error_code == code


async def test_calls_with_another_producer_id_or_of_an_unknown_one_have_no_mapping() -> None:
    made = broker()
    await init(made)
    assert await add(made, 0, producer=(PRODUCER + 5, 0)) == [NO_MAPPING]
    assert await add(made, 0, name="unknown") == [NO_MAPPING]
    assert (await end(made, producer=(PRODUCER + 5, 0)))[0] == NO_MAPPING
    assert (await end(made, name="unknown"))[0] == NO_MAPPING


async def test_calls_without_an_id_are_invalid() -> None:
    made = broker()
    assert (await init(made, ""))[0] == ErrorCode.INVALID_REQUEST
    assert await add(made, 0, name="") == [ErrorCode.INVALID_REQUEST]
    assert (await end(made, name=""))[0] == ErrorCode.INVALID_REQUEST
    assert (await describe(made, "")).error_code == ErrorCode.INVALID_REQUEST


async def test_one_partition_that_does_not_exist_keeps_all_out() -> None:
    made = broker()
    await init(made)
    assert await add(made, 0, 7) == [NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await add(made, 0, topic="absent") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await add(made, 0, topic=TRANSACTIONS_TOPIC) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert (await describe(made)).transaction_state == "Empty"


async def test_end_without_a_transaction_is_refused() -> None:
    made = broker()
    await init(made)
    assert (await end(made))[0] == WRONG_STATE
    assert (await end(made, commits=False))[0] == WRONG_STATE
    # The second protocol's abort moves its producer on.
    assert await end(made, commits=False, version=5) == (NONE, PRODUCER, 1)


async def test_partition_of_the_group_is_added_with_its_offsets() -> None:
    made = broker()
    await init(made)
    for group, code in (("g", NONE), ("", ErrorCode.INVALID_GROUP_ID)):
        request = AddOffsetsToTxnRequest("t", PRODUCER, 0, group)
        found = await made.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, request, AddOffsetsToTxnResponse)
        assert found.error_code == code
    assert [each.topic for each in (await describe(made)).topics] == [OFFSETS_TOPIC]


@pytest.mark.parametrize("version", [4, 5])
async def test_brokers_verify_and_add_for_many_producers_at_once(version: int) -> None:
    made = broker()
    await init(made)
    topics = [AddPartitionsToTxnTopic("orders", [0])]
    wanted = [
        AddPartitionsToTxnTransaction("t", PRODUCER, 0, True, topics),
        AddPartitionsToTxnTransaction("unknown", PRODUCER, 0, True, topics),
    ]
    for verified in (WRONG_STATE, NONE):
        found = await made.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, version, AddPartitionsToTxnRequest(wanted), AddPartitionsToTxnResponse
        )
        assert [(each.transactional_id, codes(each)) for each in found.results_by_transaction] == [
            ("t", [verified]),
            ("unknown", [NO_MAPPING]),
        ]
        adding = AddPartitionsToTxnTransaction("t", PRODUCER, 0, False, topics)
        await made.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, version, AddPartitionsToTxnRequest([adding]), AddPartitionsToTxnResponse
        )


async def test_unknown_transactional_id_is_not_described() -> None:
    assert (await describe(broker(), "unknown")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_transactional_ids_are_listed_by_state_producer_and_pattern() -> None:
    made = broker()
    for name in ("pay-1", "pay-2", "ship-1"):
        await init(made, name)
    await add(made, 0, name="pay-2", producer=(PRODUCER + 1, 0))

    async def listed(*given: object) -> tuple[int, list[str], list[str]]:
        request = ListTransactionsRequest(*given)  # type: ignore[arg-type]  # in the order of its fields
        found = await made.ask(ApiKey.LIST_TRANSACTIONS, 2, request, ListTransactionsResponse)
        return (
            found.error_code,
            sorted(each.transactional_id for each in found.transaction_states),
            found.unknown_state_filters,
        )

    assert await listed() == (NONE, ["pay-1", "pay-2", "ship-1"], [])
    assert await listed(["Ongoing"]) == (NONE, ["pay-2"], [])
    assert await listed(["Ongoing", "Lost"]) == (NONE, ["pay-2"], ["Lost"])
    assert await listed(["Lost"]) == (NONE, [], ["Lost"])
    assert await listed([], [PRODUCER + 2]) == (NONE, ["ship-1"], [])
    assert await listed([], [], -1, "pay-.*") == (NONE, ["pay-1", "pay-2"], [])
    assert await listed([], [], -1, "(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, [], [])
    assert await listed([], [], 5_000) == (NONE, [], [])


async def test_marker_of_a_replaced_coordinator_is_fenced() -> None:
    made = broker()

    async def write(topic: str, coordinator_epoch: int, *, epoch: int = 0, version: int = 1) -> list[int]:
        marker = WritableTxnMarker(
            7, epoch, True, [WritableTxnMarkerTopic(topic, [0])], coordinator_epoch=coordinator_epoch
        )
        written = await made.ask(
            ApiKey.WRITE_TXN_MARKERS, version, WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse
        )
        return codes(written)

    assert await write("orders", 5, version=2) == [NONE]
    assert await write("orders", 4) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert await write("orders", 5, epoch=3) == [NONE]
    assert await write("orders", 5, epoch=2) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await write("absent", 5) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await write(TRANSACTIONS_TOPIC, 5) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
