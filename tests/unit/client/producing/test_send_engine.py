from __future__ import annotations

import pytest

from ottla.client.producing.errors import MessageNotDelivered, ProducerClosed
from ottla.client.producing.settings import ProducerSettings
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, ProducerStopped, UnknownTopic
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from tests.unit.client.fake_cluster import FakeCluster, Fault, script
from tests.unit.client.producing.sending import Sending


def values_in(fake: FakeCluster, partition: TopicPartition) -> list[bytes | None]:
    return [record.value for record in fake.partitions[partition].records()]


def test_message_is_sent_after_its_linger_time_and_acknowledged() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    it = Sending(fake, ProducerSettings(linger_ms=5))
    delivery = it.send("t", b"v")
    it.engine.turn()
    assert not delivery.is_done
    fake.clock.advance(5)
    it.flush()
    assert delivery.wait(0)[:3] == ("t", 0, 0)
    assert values_in(fake, partition) == [b"v"]


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.SILENCE])
@pytest.mark.parametrize("hit", range(4))
def test_lost_request_costs_and_doubles_no_message(fault: Fault, hit: int) -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.brokers[1].fault_of = script(*[None] * hit, fault)
    it = Sending(fake, ProducerSettings(batch_count_max=2))
    deliveries = [it.send("t", b"%d" % number) for number in range(10)]
    it.flush()
    assert [delivery.wait(0).offset for delivery in deliveries] == list(range(10))
    assert values_in(fake, partition) == [b"%d" % number for number in range(10)]


def test_topic_that_appears_in_time_is_waited_for() -> None:
    fake = FakeCluster()
    it = Sending(fake)
    step = it.topic_step("t")
    assert step.attempt() is None
    it.engine.turn()
    assert step.attempt() is None
    fake.add_topic("t", 1, 1)
    assert it.until_taken(step) == 2


def test_topic_that_stays_missing_is_unknown() -> None:
    fake = FakeCluster()
    it = Sending(fake)
    with pytest.raises(UnknownTopic, match="topic t does not exist"):
        it.send("t", b"v")
    fake.add_topic("t", 1)
    assert it.send("t", b"v"), "the next one asks again"


def test_topic_is_asked_for_again_while_no_broker_answers() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    fake.brokers[1].is_down = True
    it = Sending(fake)
    step = it.topic_step("t")
    for _ in range(5):
        assert step.attempt() is None
        it.engine.turn()
    assert "no broker is at" in str(step.too_late(60_000))
    fake.brokers[1].is_down = False
    assert it.until_taken(step) == 1


def test_partition_beyond_the_topics_is_looked_up_once_more_and_refused() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    it = Sending(fake)
    it.until_taken(it.topic_step("t"))
    with pytest.raises(UnknownTopic, match="no partition 2"):
        it.until_taken(it.topic_step("t", 3))
    fake.add_topic("t", 1, 1, 1)
    assert it.until_taken(it.topic_step("t", 3)) == 3


def test_partitions_that_are_added_are_noticed() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    it = Sending(fake, ProducerSettings(metadata_max_age_ms=10_000))
    it.send("t", b"v")
    it.flush()
    fake.add_topic("t", 1, 1, 1)
    fake.clock.advance(10_000)
    it.send("t", b"v")
    it.flush()
    it.engine.turn()
    assert it.accumulator.partitions_count("t") == 3


def test_topics_in_use_are_not_checked_one_after_the_other_while_no_broker_answers() -> None:
    fake = FakeCluster()
    topics = [f"t{number}" for number in range(20)]
    for topic in topics:
        fake.add_topic(topic, 1)
    it = Sending(fake, ProducerSettings(metadata_max_age_ms=10_000))
    for topic in topics:
        it.send(topic, b"v")
    it.flush()
    fake.brokers[1].stop()
    fake.clock.advance(10_000)
    fake.dialled.clear()
    it.engine.turn()
    # One request for all, and no wait for it.
    assert len(fake.dialled) <= 1
    assert fake.clock.monotonic_ms() <= 10_001


def test_messages_wait_until_a_producer_id_can_be_had() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    it = Sending(fake)
    deliveries = [it.send("t", b"%d" % number, key=b"k") for number in range(3)]
    fake.brokers[1].stop()
    with it.monitor.lock:
        it.accumulator.close_all()
    it.engine.turn()
    it.engine.turn()
    assert not any(delivery.is_done for delivery in deliveries)
    fake.brokers[1].is_down = False
    it.flush()
    assert values_in(fake, partition) == [b"0", b"1", b"2"]


def test_messages_that_no_broker_takes_fail_after_their_time() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    it = Sending(fake, ProducerSettings(delivery_timeout_ms=2_000))
    delivery = it.send("t", b"v")
    fake.brokers[1].stop()
    it.flush()
    with pytest.raises(MessageNotDelivered) as told:
        delivery.wait(0)
    assert not told.value.may_be_stored
    assert it.failures.take() is None, "its sender received the error"


def test_messages_of_a_long_backlog_fail_together_when_their_time_is_over() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    it = Sending(fake, ProducerSettings(delivery_timeout_ms=30_000, batch_count_max=1))
    deliveries = [it.send("t", b"%d" % number) for number in range(20)]
    fake.brokers[1].stop()
    began_ms = fake.clock.monotonic_ms()
    it.flush()
    assert all(isinstance(delivery.error(), MessageNotDelivered) for delivery in deliveries)
    assert "no broker is at" in str(deliveries[-1].error())
    # One attempt to reach a broker takes five seconds.
    assert fake.clock.monotonic_ms() - began_ms < 30_000 + 2 * 5_000


def test_time_that_a_message_has_waited_for_a_producer_id_is_a_part_of_its_own() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    it = Sending(fake, ProducerSettings(delivery_timeout_ms=30_000))
    delivery = it.send("t", b"v")
    began_ms = fake.clock.monotonic_ms()
    fake.brokers[1].stop()
    with it.monitor.lock:
        it.accumulator.close_all()
    while fake.clock.monotonic_ms() - began_ms < 20_000:
        it.engine.turn()
    fake.brokers[1].is_down = False
    fake.brokers[1].error_of = lambda api, _: ErrorCode.NOT_ENOUGH_REPLICAS if api is ApiKey.PRODUCE else None
    it.flush()
    assert isinstance(delivery.error(), MessageNotDelivered)
    assert fake.clock.monotonic_ms() - began_ms < 35_000


def test_producer_goes_on_with_a_new_id_when_its_numbers_are_lost() -> None:
    fake = FakeCluster(2)
    lost, other = fake.add_topic("t", 1, 2)
    it = Sending(fake, ProducerSettings(linger_ms=0))
    for number in (0, 1):
        it.send("t", b"first", partition=number)
    it.flush()
    (producer_id,) = fake.partitions[lost].numbers
    numbers = fake.partitions[lost].numbers[producer_id]
    numbers.clear()
    numbers.append((90, 91, 0))
    failed = it.send("t", b"second", partition=0)
    it.flush()
    error = failed.error()
    assert isinstance(error, MessageNotDelivered)
    assert isinstance(error.reason, ProducerStopped)
    assert error.may_be_stored
    deliveries = [it.send("t", b"third", partition=number) for number in (0, 1)]
    it.flush()
    assert [delivery.wait(0).offset for delivery in deliveries] == [1, 1]
    assert set(fake.partitions[other].numbers) == {producer_id, producer_id + 1}


def test_batches_that_were_not_sent_when_the_numbers_were_lost_are_sent_with_the_next() -> None:
    fake = FakeCluster()
    lost, other = fake.add_topic("t", 1, 1)
    it = Sending(fake, ProducerSettings(linger_ms=0, batch_count_max=1))
    it.send("t", b"a", partition=0)
    it.flush()
    (producer_id,) = fake.partitions[lost].numbers
    numbers = fake.partitions[lost].numbers[producer_id]
    numbers.clear()
    numbers.append((90, 91, 0))
    # Only one of a partition is under way until the leader knows the producer: the second one waits.
    deliveries = [it.send("t", b"%d" % number, partition=1) for number in range(4)]
    failed = it.send("t", b"b", partition=0)
    it.flush()
    assert isinstance(failed.error(), MessageNotDelivered)
    stored = values_in(fake, other)
    assert [stored[delivery.wait(0).offset] for delivery in deliveries[1:]] == [b"1", b"2", b"3"]
    assert stored[-3:] == [b"1", b"2", b"3"], "in the order of sending"


def test_refused_batch_fails_and_the_next_ones_do_not() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    codes = iter([ErrorCode.MESSAGE_TOO_LARGE])
    it = Sending(fake, ProducerSettings(batch_count_max=1))
    it.send("t", b"a")
    it.flush()
    fake.brokers[1].error_of = lambda api, _: next(codes, None) if api is ApiKey.PRODUCE else None
    refused, taken = it.send("t", b"b"), it.send("t", b"c")
    it.flush()
    error = refused.error()
    assert isinstance(error, MessageNotDelivered)
    assert isinstance(error.reason, BrokerRefused)
    assert taken.wait(0).offset == 1
    assert values_in(fake, partition) == [b"a", b"c"]


def test_failure_that_nobody_asked_for_is_kept_and_told_once() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    fake.brokers[1].error_of = lambda api, _: ErrorCode.INVALID_RECORD if api is ApiKey.PRODUCE else None
    it = Sending(fake)
    first, *_ = [it.send("t", b"v") for _ in range(3)]
    it.flush()
    assert first.error() is not None
    untold = it.failures.take()
    assert untold is not None
    assert untold.messages_count == 2
    assert it.failures.take() is None


def test_abandoned_messages_say_whether_they_may_be_stored() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    it = Sending(fake, ProducerSettings(linger_ms=1000))
    fake.brokers[1].fault_of = lambda api: Fault.SILENCE if api is ApiKey.PRODUCE else None
    sent = it.send("t", b"sent", partition=0)
    with it.monitor.lock:
        it.accumulator.close_all()
    it.engine.turn()
    kept = it.send("t", b"kept", partition=0)
    it.engine.abandon(CallTimedOut("enough"))
    fates = [error.may_be_stored for each in (sent, kept) if isinstance(error := each.error(), MessageNotDelivered)]
    assert fates == [True, False]
    assert not it.engine.turn(), "it has finished"


def test_finishing_sends_everything_and_ends() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    it = Sending(fake, ProducerSettings(linger_ms=60_000))
    delivery = it.send("t", b"v")
    with it.monitor.lock:
        it.monitor.refuse(ProducerClosed("closed"))
        it.engine.finish()
    rounds = 0
    while it.engine.turn():
        rounds += 1
        assert rounds < 100
    assert delivery.wait(0).offset == 0
    with pytest.raises(ProducerClosed):
        it.send("t", b"v")


def test_orphan_sends_everything_and_ends() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    it = Sending(fake, ProducerSettings(linger_ms=60_000))
    delivery = it.send("t", b"v")
    it.engine.orphan()
    rounds = 0
    while it.engine.turn():
        rounds += 1
        assert rounds < 100
    assert delivery.wait(0).offset == 0


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_failing_callback_is_told_and_does_not_stop_the_others(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise error

    told: list[object] = []
    monkeypatch.setattr("threading.excepthook", lambda arguments: told.append(arguments.exc_value))
    fake = FakeCluster()
    fake.add_topic("t", 1)
    it = Sending(fake)
    called: list[int] = []
    it.send("t", b"v").add_done_callback(fail)
    it.send("t", b"v").add_done_callback(lambda delivery: called.append(delivery.wait(0).offset))
    it.flush()
    assert called == [1]
    assert [type(each) for each in told] == [error]


def test_sleeping_engine_is_woken_for_what_is_earlier_only() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    it = Sending(fake, ProducerSettings(linger_ms=5))
    it.until_taken(it.topic_step("t"))
    before = it.interrupts_count
    it.send("t", b"v")
    assert it.interrupts_count == before, "it is not asleep between rounds"
