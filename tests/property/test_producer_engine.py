"""Any order of sends, flushes and faults: each message has one outcome; acknowledged messages are stored at their
receipt's offset, once, and in the order of sending."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.producing.delivery import Delivery, Receipt
from ottla.client.producing.errors import MessageNotDelivered, MessagesNotDelivered
from ottla.client.producing.settings import ProducerSettings
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.records.compression import Codec
from tests.property.property_settings import example_settings
from tests.unit.client.fake_cluster import FakeCluster, Fault
from tests.unit.client.producing.sending import Sending

KEYS: Final = (None, b"a", b"b", b"c")
REFUSALS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE)


class Send(NamedTuple):
    key: bytes | None


class SendSet(NamedTuple):
    keys: list[bytes | None]


class Turn(NamedTuple):
    rounds_count: int
    passing_ms: int


class Flush(NamedTuple):
    pass


class MoveLeader(NamedTuple):
    partition: int
    leader_id: int


STEPS: Final = st.lists(
    st.one_of(
        st.builds(Send, st.sampled_from(KEYS)),
        st.builds(SendSet, st.lists(st.sampled_from(KEYS), max_size=12)),
        st.builds(Turn, st.integers(1, 3), st.integers(0, 10)),
        st.just(Flush()),
        st.builds(MoveLeader, st.integers(0, 1), st.integers(1, 2)),
    ),
    max_size=30,
)
FAULTS: Final = st.lists(st.one_of(st.none(), st.none(), st.sampled_from(list(Fault))), max_size=12)
ERRORS: Final = st.lists(st.one_of(st.none(), st.none(), st.sampled_from(REFUSALS)), max_size=12)


@example_settings(200)
@given(
    steps=STEPS,
    faults=FAULTS,
    errors=ERRORS,
    count_max=st.integers(1, 5),
    buffer_bytes=st.sampled_from([200, 2_000, 1 << 20]),
    codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
)
def test_messages_are_stored_once_in_order_at_their_receipts_offsets(
    steps: list[Send | SendSet | Turn | Flush | MoveLeader],
    faults: list[Fault | None],
    errors: list[ErrorCode | None],
    count_max: int,
    buffer_bytes: int,
    codec: Codec,
) -> None:
    fake = FakeCluster(2)
    partitions = fake.add_topic("t", 1, 2)
    left_faults, left_errors = iter(faults), iter(errors)
    for broker in fake.brokers.values():
        broker.fault_of = lambda api: next(left_faults, None) if api is ApiKey.PRODUCE else None
        broker.error_of = lambda api, _: next(left_errors, None) if api is ApiKey.PRODUCE else None
    it = Sending(
        fake, ProducerSettings(batch_count_max=count_max, buffer_bytes=buffer_bytes, compression=codec, linger_ms=5)
    )
    sent_count = 0
    singles: list[tuple[bytes, bytes | None, Delivery[Receipt]]] = []
    sets: list[tuple[list[bytes], list[bytes | None], Delivery[list[Receipt]]]] = []
    for step in steps:
        if isinstance(step, Send):
            value = b"%06d" % sent_count
            sent_count += 1
            singles.append((value, step.key, it.send("t", value, key=step.key)))
        elif isinstance(step, SendSet):
            values = [b"%06d" % (sent_count + number) for number in range(len(step.keys))]
            sent_count += len(values)
            sets.append((values, step.keys, it.send_set("t", values, step.keys)))
        elif isinstance(step, Turn):
            fake.clock.advance(step.passing_ms)
            for _ in range(step.rounds_count):
                it.engine.turn()
        elif isinstance(step, Flush):
            it.flush()
        else:
            fake.move_leader(partitions[step.partition], step.leader_id)
    it.flush()
    acknowledged, certainly_not = _ends(singles, sets)
    _check(fake, partitions, acknowledged, certainly_not)
    assert it.accumulator.unsettled == {}


def _ends(
    singles: list[tuple[bytes, bytes | None, Delivery[Receipt]]],
    sets: list[tuple[list[bytes], list[bytes | None], Delivery[list[Receipt]]]],
) -> tuple[dict[bytes, tuple[bytes | None, Receipt]], set[bytes]]:
    """The acknowledged values with keys and receipts, and the values that certainly are not stored."""
    acknowledged: dict[bytes, tuple[bytes | None, Receipt]] = {}
    certainly_not: set[bytes] = set()
    for value, key, delivery in singles:
        assert delivery.is_done
        error = delivery.error()
        if error is None:
            acknowledged[value] = (key, delivery.wait(0))
        elif isinstance(error, MessageNotDelivered) and not error.may_be_stored:
            certainly_not.add(value)
    for values, keys, of_set in sets:
        failed = of_set.error()
        if failed is None:
            for value, key, receipt in zip(values, keys, of_set.wait(0), strict=True):
                acknowledged[value] = (key, receipt)
        else:
            assert isinstance(failed, MessagesNotDelivered)
            assert 0 < failed.messages_count <= len(values)
    return acknowledged, certainly_not


def _check(
    fake: FakeCluster,
    partitions: list[TopicPartition],
    acknowledged: dict[bytes, tuple[bytes | None, Receipt]],
    certainly_not: set[bytes],
) -> None:
    stored = {
        (partition.partition, record.offset): record
        for partition in partitions
        for record in fake.partitions[partition].records()
    }
    counts: defaultdict[bytes | None, int] = defaultdict(int)
    for record in stored.values():
        counts[record.value] += 1
    assert all(count == 1 for count in counts.values()), f"stored twice: {counts}"
    assert not certainly_not & counts.keys(), "reported as not stored, and stored"
    for value, (key, receipt) in acknowledged.items():
        record = stored[receipt.partition, receipt.offset]
        assert (record.value, record.key) == (value, key)
    for partition in partitions:
        order = [record.value for record in fake.partitions[partition].records()]
        assert order == sorted(order, key=lambda value: value or b""), "in the order of sending"
