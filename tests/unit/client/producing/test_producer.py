from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.producing.produce_requests import BatchResult, DeliveryStatus
from ottla.client.producing.raw_producer import STEP_MS, RawProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.errors import CallTimedOut, ProducerStopped
from ottla.client.wire.options import ClientOptions
from ottla.model.error_code import ErrorCode
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.records.builder import build_batch
from ottla.records.errors import CorruptBatch
from ottla.records.record import Record
from tests.property.property_settings import examples_max
from tests.unit.client.fake_cluster import FakeCluster, Fault, script


def batch_of(name: str, count: int = 2) -> bytearray:
    return build_batch([Record(0, 1000, None, f"{name}.{number}".encode()) for number in range(count)])


def names_in(cluster: FakeCluster, partition: TopicPartition) -> list[str]:
    """The batches of a partition by the name in their first record."""
    values = [record.value or b"" for record in cluster.partitions[partition].records()]
    return [value.decode().removesuffix(".0") for value in values if value.endswith(b".0")]


def send_all(producer: RawProducer, partition: TopicPartition, names: str) -> dict[object, BatchResult]:
    for name in names:
        producer.send(partition, batch_of(name), name)
    return {result.tag: result for result in producer.flush()}


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.SILENCE])
@pytest.mark.parametrize("hit", range(5))
def test_producer_stores_every_batch_once_and_in_order_when_a_request_is_lost(fault: Fault, hit: int) -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.brokers[1].fault_of = script(*[None] * hit, fault)
    with fake.client() as cluster, RawProducer(cluster) as producer:
        results = send_all(producer, partition, "abcdefgh")
    assert names_in(fake, partition) == list("abcdefgh")
    assert [results[name].base_offset for name in "abcdefgh"] == list(range(0, 16, 2))
    assert {result.status for result in results.values()} == {DeliveryStatus.ACKNOWLEDGED}


def test_producer_follows_the_leader_and_keeps_the_order() -> None:
    fake = FakeCluster(2)
    (partition,) = fake.add_topic("t", 1)
    with fake.client() as cluster, RawProducer(cluster) as producer:
        send_all(producer, partition, "ab")
        fake.move_leader(partition, 2)
        results = send_all(producer, partition, "cdef")
    assert names_in(fake, partition) == list("abcdef")
    assert {result.status for result in results.values()} == {DeliveryStatus.ACKNOWLEDGED}


def test_producer_waits_while_nobody_leads() -> None:
    fake = FakeCluster(2)
    (partition,) = fake.add_topic("t", 2)
    fake.brokers[2].stop()
    with fake.client() as cluster, RawProducer(cluster) as producer:
        producer.send(partition, batch_of("a"), "a")
        assert producer.poll(1000) == []
        fake.move_leader(partition, 1)
        (result,) = producer.flush()
    assert result.status is DeliveryStatus.ACKNOWLEDGED


def test_producer_refuses_what_nobody_took_in_time_and_can_go_on() -> None:
    fake = FakeCluster(2)
    (partition,) = fake.add_topic("t", 2)
    fake.brokers[2].stop()
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(delivery_timeout_ms=2000)) as producer:
        producer.send(partition, batch_of("a"), "a")
        (result,) = producer.flush(60_000)
        assert result.status is DeliveryStatus.REFUSED
        assert isinstance(result.error, CallTimedOut)
        fake.move_leader(partition, 1)
        assert send_all(producer, partition, "b")["b"].status is DeliveryStatus.ACKNOWLEDGED
    assert names_in(fake, partition) == ["b"]


def test_partitions_of_an_unreachable_cluster_do_not_wait_for_it_one_after_the_other() -> None:
    fake = FakeCluster()
    partitions = fake.add_topic("t", *[1] * 20)
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(delivery_timeout_ms=5_000)) as producer:
        send_all(producer, partitions[0], "a")
        fake.brokers[1].stop()
        cluster.forget(["t"])
        began_ms = fake.clock.monotonic_ms()
        for partition in partitions:
            producer.send(partition, batch_of("b"))
        assert fake.clock.monotonic_ms() == began_ms
        fake.clock.advance(1_000)
        producer.turn(0)
        assert fake.clock.monotonic_ms() <= began_ms + 1_001
        results = producer.flush()
        assert [type(result.error) for result in results] == [CallTimedOut] * 20
        assert "no broker is at" in str(results[-1].error)
        assert fake.clock.monotonic_ms() - began_ms <= 5_000 + STEP_MS


def test_a_partition_whose_leader_is_known_is_sent_while_the_look_up_of_another_one_fails() -> None:
    fake = FakeCluster()
    (sought,) = fake.add_topic("sought", 1)
    (known,) = fake.add_topic("known", 1)
    with fake.client() as cluster, RawProducer(cluster) as producer:
        send_all(producer, known, "a")
        fake.brokers[1].fault_of = lambda api: Fault.SILENCE if api is ApiKey.METADATA else None
        producer.send(sought, batch_of("b"), "b")
        producer.send(known, batch_of("c"), "c")
        assert [result.tag for result in producer.poll(0)] == ["c"]


def test_a_topic_that_a_broker_refuses_for_long_does_not_keep_another_ones_look_up() -> None:
    fake = FakeCluster()
    partitions = fake.add_topic("refused", *[1] * 20)
    (other,) = fake.add_topic("other", 1)
    fake.topic_codes["refused"] = ErrorCode.LEADER_NOT_AVAILABLE
    with fake.client() as cluster, RawProducer(cluster) as producer:
        producer.identify()
        began_ms = fake.clock.monotonic_ms()
        for partition in partitions:
            producer.send(partition, batch_of("a"))
        producer.send(other, batch_of("b"), "b")
        assert fake.clock.monotonic_ms() == began_ms
        assert [result.tag for result in producer.poll(0)] == ["b"]


@pytest.mark.parametrize("code", [None, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_flush_without_a_time_tells_of_every_batch_that_nobody_took(code: ErrorCode | None) -> None:
    fake = FakeCluster(2)
    (partition,) = fake.add_topic("t", 2)
    if code is None:
        fake.brokers[2].stop()
    fake.brokers[2].error_of = lambda api, _: code if api is ApiKey.PRODUCE else None
    with fake.client() as cluster, RawProducer(cluster) as producer:
        for name in "abc":
            producer.send(partition, batch_of(name), name)
        results = producer.flush()
        assert producer.pending_count == 0
    assert {result.tag: result.status for result in results} == dict.fromkeys("abc", DeliveryStatus.REFUSED)


def test_producer_stops_when_the_fate_of_a_batch_stays_unknown() -> None:
    fake = FakeCluster(2)
    (partition,) = fake.add_topic("t", 1)
    fake.brokers[1].fault_of = lambda api: Fault.CUT_AFTER if api is ApiKey.PRODUCE else None
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(delivery_timeout_ms=2000)) as producer:
        for name in "ab":
            producer.send(partition, batch_of(name), name)
        results = producer.flush(60_000)
        fates = {result.tag: result.status for result in results}
        assert fates == {"a": DeliveryStatus.UNKNOWN, "b": DeliveryStatus.REFUSED}, "b was never sent"
        assert [type(result.error) for result in results if result.tag == "a"] == [ProducerStopped]
        with pytest.raises(ProducerStopped):
            producer.send(partition, batch_of("c"))


def test_producer_stops_when_the_leader_has_lost_its_numbers() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    with fake.client() as cluster, RawProducer(cluster) as producer:
        send_all(producer, partition, "ab")
        numbers = fake.partitions[partition].numbers[producer.identity.producer_id]
        numbers.clear()
        numbers.append((90, 91, 0))
        producer.send(partition, batch_of("c"))
        (result,) = producer.flush()
    assert result.status is DeliveryStatus.UNKNOWN
    assert "next number" in str(result.error)


def test_producer_without_idempotence_does_not_send_again_what_may_be_stored() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.brokers[1].fault_of = script(None, Fault.CUT_AFTER)
    options = ProducerOptions(idempotent=False, max_in_flight=1)
    with fake.client() as cluster, RawProducer(cluster, options) as producer:
        results = send_all(producer, partition, "abc")
    assert [results[name].status for name in "abc"] == [
        DeliveryStatus.ACKNOWLEDGED,
        DeliveryStatus.UNKNOWN,
        DeliveryStatus.ACKNOWLEDGED,
    ]
    assert names_in(fake, partition) == ["a", "b", "c"]


def test_producer_without_idempotence_sends_again_what_was_surely_refused() -> None:
    fake = FakeCluster(2)
    (partition,) = fake.add_topic("t", 1)
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(acks=1)) as producer:
        cluster.leader(partition)
        fake.move_leader(partition, 2)
        results = send_all(producer, partition, "abc")
    assert {result.status for result in results.values()} == {DeliveryStatus.ACKNOWLEDGED}
    assert names_in(fake, partition) == ["a", "b", "c"]


def test_producer_closes_the_gap_of_refused_batches() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    answers = iter([None, ErrorCode.INVALID_RECORD, None, None, ErrorCode.INVALID_RECORD, None])
    fake.brokers[1].error_of = lambda api, _: next(answers, None) if api is ApiKey.PRODUCE else None
    with fake.client() as cluster, RawProducer(cluster) as producer:
        results = send_all(producer, partition, "abcdef")
    refused = [name for name in "abcdef" if results[name].status is DeliveryStatus.REFUSED]
    stored = [name for name in "abcdef" if results[name].status is DeliveryStatus.ACKNOWLEDGED]
    assert len(refused) == 2
    assert names_in(fake, partition) == stored


def test_producer_stops_when_a_batch_that_may_be_stored_is_refused() -> None:
    """The next batch would take its number, and the leader would take it for the one that it has stored."""
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.brokers[1].fault_of = script(Fault.CUT_AFTER)
    codes = [None, ErrorCode.MESSAGE_TOO_LARGE]
    fake.brokers[1].error_of = lambda api, _: codes.pop(0) if api is ApiKey.PRODUCE and codes else None
    with fake.client() as cluster, RawProducer(cluster) as producer:
        results = send_all(producer, partition, "ab")
    assert {tag: result.status for tag, result in results.items()} == {
        "a": DeliveryStatus.UNKNOWN,
        "b": DeliveryStatus.REFUSED,
    }
    assert names_in(fake, partition) == ["a"]


def test_producer_keeps_batches_of_several_partitions_in_one_request_to_a_leader() -> None:
    fake = FakeCluster(2)
    partitions = fake.add_topic("t", 1, 2, 1, 2)
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(max_in_flight=1)) as producer:
        for round_number in range(3):
            for partition in partitions:
                producer.send(partition, batch_of(str(round_number)))
        assert {result.status for result in producer.flush()} == {DeliveryStatus.ACKNOWLEDGED}
    for partition in partitions:
        assert names_in(fake, partition) == ["0", "1", "2"]
    for broker in fake.brokers.values():
        assert len([api for api, _ in broker.seen if api is ApiKey.PRODUCE]) < 6


def test_producer_waits_in_send_when_its_buffer_is_full() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    options = ProducerOptions(buffer_bytes_max=1000)
    with fake.client() as cluster, RawProducer(cluster, options) as producer:
        for number in range(50):
            producer.send(partition, batch_of(str(number)))
            assert producer.pending_count * len(batch_of("00")) <= 1000
        assert len(producer.flush()) == 50


def test_producer_refuses_bytes_that_are_no_batch() -> None:
    fake = FakeCluster()
    with fake.client() as cluster, RawProducer(cluster) as producer, pytest.raises(CorruptBatch):
        producer.send(TopicPartition("t", 0), bytearray(b"x" * 100))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ProducerOptions(acks=2),
        lambda: ProducerOptions(acks=1, idempotent=True),
        lambda: ProducerOptions(max_in_flight=6),
        lambda: ProducerOptions(acks=1, max_in_flight=0),
    ],
)
def test_producer_options_refuse_what_cannot_be_together(make: Callable[[], ProducerOptions]) -> None:
    with pytest.raises(ConfigError):
        make()


@settings(max_examples=examples_max(150))
@given(
    faults=st.lists(st.none() | st.sampled_from(list(Fault)), max_size=25),
    codes=st.lists(
        st.none()
        | st.sampled_from(
            [
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.REQUEST_TIMED_OUT,
                ErrorCode.MESSAGE_TOO_LARGE,
            ]
        ),
        max_size=25,
    ),
    moves=st.lists(st.integers(0, 40), max_size=3),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=20),
)
def test_acknowledged_batches_are_stored_once_and_in_order_whatever_goes_wrong(
    faults: list[Fault | None], codes: list[ErrorCode | None], moves: list[int], sizes: list[int]
) -> None:
    fake = FakeCluster(2)
    (partition,) = fake.add_topic("t", 1)
    waiting_codes = list(codes)
    for broker in fake.brokers.values():
        broker.fault_of = script(*faults)
        broker.error_of = lambda api, _: waiting_codes.pop() if api is ApiKey.PRODUCE and waiting_codes else None
    options = ClientOptions(request_timeout_ms=1000)
    results: list[BatchResult] = []
    with fake.client(options) as cluster, RawProducer(cluster) as producer:
        for number, size in enumerate(sizes):
            producer.send(partition, batch_of(str(number), size), str(number))
            if number in moves:
                fake.move_leader(partition, 3 - fake.partitions[partition].leader_id)
            results += producer.poll(0)
        results += producer.flush(600_000)
    fates = {str(result.tag): result for result in results}
    assert len(results) == len(fates) == len(sizes), "each batch has one fate"
    stored = names_in(fake, partition)
    acknowledged = [
        str(number) for number in range(len(sizes)) if fates[str(number)].status is DeliveryStatus.ACKNOWLEDGED
    ]
    refused = {tag for tag, result in fates.items() if result.status is DeliveryStatus.REFUSED}
    assert len(stored) == len(set(stored)), "a batch was stored twice"
    assert stored == sorted(stored, key=int), "the order of sending was not kept"
    assert set(acknowledged) <= set(stored)
    assert not refused & set(stored), "a refused batch is stored"
    records = fake.partitions[partition].records()
    for tag in acknowledged:
        assert records[fates[tag].base_offset].value == f"{tag}.0".encode()


def refuses_batch(number: int, code: ErrorCode) -> Callable[[ApiKey, TopicPartition], ErrorCode | None]:
    """The broker's answer to the produce of this number, from 0 on; the others are stored."""
    seen = itertools.count()
    return lambda api, partition: code if api is ApiKey.PRODUCE and next(seen) == number else None


@pytest.mark.parametrize("hit", range(4))
def test_producer_that_halts_stores_nothing_after_a_refused_batch_until_it_is_resumed(hit: int) -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.brokers[1].error_of = refuses_batch(hit, ErrorCode.MESSAGE_TOO_LARGE)
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(halts_on_refusal=True)) as producer:
        results = send_all(producer, partition, "abcdef")
        assert [name for name in "abcdef" if results[name].status is DeliveryStatus.REFUSED] == list("abcdef"[hit:])
        assert send_all(producer, partition, "g")["g"].status is DeliveryStatus.REFUSED
        producer.resume(partition)
        assert send_all(producer, partition, "hi")["i"].status is DeliveryStatus.ACKNOWLEDGED
    assert names_in(fake, partition) == [*"abcdef"[:hit], "h", "i"]


def test_producer_that_halts_refuses_what_waits_behind_a_batch_that_nobody_took_in_time() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.brokers[1].error_of = lambda api, _: ErrorCode.NOT_ENOUGH_REPLICAS if api is ApiKey.PRODUCE else None
    options = ProducerOptions(delivery_timeout_ms=2000, halts_on_refusal=True)
    with fake.client() as cluster, RawProducer(cluster, options) as producer:
        producer.send(partition, batch_of("a"), "a")
        fake.clock.advance(1900)
        producer.send(partition, batch_of("b"), "b")
        results = producer.flush()
    assert [result.status for result in results] == [DeliveryStatus.REFUSED, DeliveryStatus.REFUSED]
    assert names_in(fake, partition) == []


def test_producer_without_idempotence_cannot_promise_to_halt() -> None:
    with pytest.raises(ConfigError, match="without idempotence"):
        ProducerOptions(idempotent=False, halts_on_refusal=True)


def test_batch_refused_by_a_replaced_leader_and_then_late_is_of_unknown_outcome() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(delivery_timeout_ms=2000)) as producer:
        send_all(producer, partition, "a")
        # A leader that is replaced before its followers have the batch answers so; the next one may have it.
        fake.brokers[1].error_of = lambda api, _: ErrorCode.NOT_LEADER_OR_FOLLOWER if api is ApiKey.PRODUCE else None
        results = send_all(producer, partition, "b")
        assert results["b"].status is DeliveryStatus.UNKNOWN
        assert producer.is_stopped


def test_halted_partition_does_not_split_what_is_in_flight() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    codes = [None, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE]
    fake.brokers[1].error_of = lambda api, _: codes.pop(0) if api is ApiKey.PRODUCE and codes else None
    options = ProducerOptions(halts_on_refusal=True)

    def halves(of: TopicPartition, batch: bytearray) -> list[bytearray]:
        return [batch_of("x", 1), batch_of("y", 1)]

    with fake.client() as cluster, RawProducer(cluster, options, split=halves) as producer:
        send_all(producer, partition, "a")
        results = send_all(producer, partition, "bc")
    assert [results[name].status for name in "bc"] == [DeliveryStatus.REFUSED, DeliveryStatus.REFUSED]
    assert names_in(fake, partition) == ["a"]


def halves(of: TopicPartition, batch: bytearray) -> list[bytearray]:
    return [batch_of("x", 1), batch_of("y", 1)]


def answers(*codes: ErrorCode | None) -> Callable[[ApiKey, TopicPartition], ErrorCode | None]:
    """A broker's answers to produces for one partition, in order; what follows is stored."""
    left = list(codes)
    return lambda api, partition: left.pop(0) if api is ApiKey.PRODUCE and not partition.partition and left else None


def test_batch_that_is_too_large_for_the_next_leader_is_split() -> None:
    fake = FakeCluster(2)
    (partition,) = fake.add_topic("t", 1)
    fake.brokers[2].error_of = answers(ErrorCode.MESSAGE_TOO_LARGE)
    with fake.client() as cluster, RawProducer(cluster, split=halves) as producer:
        send_all(producer, partition, "a")
        fake.move_leader(partition, 2)
        producer.send(partition, batch_of("bc"), "bc")
        results = producer.flush()
        assert not producer.is_stopped
    assert [result.status for result in results] == [DeliveryStatus.ACKNOWLEDGED, DeliveryStatus.ACKNOWLEDGED]
    assert names_in(fake, partition) == ["a", "x", "y"]


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP])
def test_refusal_of_content_after_a_leader_move_fails_only_that_batch(code: ErrorCode) -> None:
    fake = FakeCluster(2)
    partition, other = fake.add_topic("t", 1, 1)
    # Both batches are in flight when the leader moves.
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    fake.brokers[1].error_of = answers(None, moved, moved, code)
    with fake.client() as cluster, RawProducer(cluster) as producer:
        send_all(producer, partition, "a")
        producer.send(other, batch_of("z"), "z")
        results = send_all(producer, partition, "bc")
        assert not producer.is_stopped
    assert {tag: result.status for tag, result in results.items()} == {
        "z": DeliveryStatus.ACKNOWLEDGED,
        "b": DeliveryStatus.REFUSED,
        "c": DeliveryStatus.ACKNOWLEDGED,
    }
    assert names_in(fake, partition) == ["a", "c"]


def test_other_refusal_after_a_leader_move_stops_the_producer() -> None:
    """Access can be withdrawn between two attempts: it says nothing about the first."""
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    refusals = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    fake.brokers[1].error_of = answers(None, *refusals)
    with fake.client() as cluster, RawProducer(cluster) as producer:
        send_all(producer, partition, "a")
        assert send_all(producer, partition, "b")["b"].status is DeliveryStatus.UNKNOWN
        assert producer.is_stopped


def test_refusal_of_content_after_a_lost_answer_and_a_leader_move_stops_the_producer() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.brokers[1].fault_of = script(None, Fault.CUT_AFTER)
    fake.brokers[1].error_of = answers(None, None, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_RECORD)
    with fake.client() as cluster, RawProducer(cluster) as producer:
        send_all(producer, partition, "a")
        assert send_all(producer, partition, "b")["b"].status is DeliveryStatus.UNKNOWN
        assert producer.is_stopped
    assert names_in(fake, partition) == ["a", "b"]


@pytest.mark.parametrize(
    "codes",
    [
        # The batches wait after the move, and the first is refused.
        [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_RECORD],
        # The first is refused, and the leader moves before it answers the second.
        [ErrorCode.INVALID_RECORD, ErrorCode.NOT_LEADER_OR_FOLLOWER],
    ],
)
def test_halt_around_a_leader_move_does_not_stop_the_producer(codes: list[ErrorCode]) -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.brokers[1].error_of = answers(None, *codes)
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(halts_on_refusal=True)) as producer:
        send_all(producer, partition, "a")
        results = send_all(producer, partition, "bc")
        assert [results[name].status for name in "bc"] == [DeliveryStatus.REFUSED, DeliveryStatus.REFUSED]
        assert not producer.is_stopped
        producer.resume(partition)
        assert send_all(producer, partition, "d")["d"].status is DeliveryStatus.ACKNOWLEDGED
    assert names_in(fake, partition) == ["a", "d"]


def test_partition_without_a_leader_beyond_the_delivery_timeout_stops_a_producer_whose_batch_may_be_stored() -> None:
    fake = FakeCluster(2)
    partition, other = fake.add_topic("t", 1, 1)
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(delivery_timeout_ms=2000)) as producer:
        send_all(producer, partition, "a")
        fake.move_leader(partition, 2)
        fake.brokers[2].stop()
        producer.send(other, batch_of("z"), "z")
        results = send_all(producer, partition, "b")
        assert producer.is_stopped
    assert results["z"].status is DeliveryStatus.ACKNOWLEDGED
    assert results["b"].status is DeliveryStatus.UNKNOWN
    assert isinstance(results["b"].error, ProducerStopped)
