"""One broker does not answer, in each way in which a broker can; what the others lead is sent and read meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import pytest

from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.offset_look_ups import FoundOffsets, OffsetLookUps
from ottla.client.fetching.offsets import LATEST, IsolationLevel
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.producing.settings import ProducerOptions, ProducerSettings
from ottla.client.streams import fetch_loop
from ottla.client.streams.fetch_loop import FetchLoop
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, BrokerUnreachable, CallTimedOut, ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.security.setting_names import client_security
from ottla.client.wire.wake_up import WakeUp
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.unit.client.fake_cluster import FakeBroker, FakeCluster, Fault, R
from tests.unit.client.fake_sasl import PASSWORD, USERNAME, FakeSasl
from tests.unit.client.producing.sending import Sending
from tests.unit.client.streams.scripted import Desk

SLOW: Final = 1
HEALTHY: Final = 2
ROUND_TRIP_MS: Final = 10
ROUNDS_COUNT: Final = 20


def is_silent_to(*apis: ApiKey) -> Callable[[FakeBroker], None]:
    def silence(broker: FakeBroker) -> None:
        broker.fault_of = lambda api: Fault.SILENCE if api in apis else None

    return silence


def vanish(broker: FakeBroker) -> None:
    broker.is_unreachable = True


def answer_late(broker: FakeBroker) -> None:
    broker.delay_ms = 4_000


def leave_unread(broker: FakeBroker) -> None:
    broker.unread_apis = {ApiKey.PRODUCE}
    is_silent_to(ApiKey.FETCH)(broker)


WAYS: Final = {
    "it has vanished": vanish,
    "it accepts connections and sends nothing": is_silent_to(ApiKey.API_VERSIONS),
    "it does not answer logins": is_silent_to(ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
    "it does not answer what is produced and fetched": is_silent_to(ApiKey.PRODUCE, ApiKey.FETCH),
    "it does not read what is produced, nor answers fetches": leave_unread,
    "it answers everything after seconds": answer_late,
}


def options() -> ClientOptions:
    names = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    return ClientOptions(security=client_security(names | {"sasl.username": USERNAME, "sasl.password": PASSWORD}))


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def fake(request: pytest.FixtureRequest) -> FakeCluster:
    """`t-0` is led by the slow broker, `t-1` by the healthy one, whose metadata the client has."""
    fake = FakeCluster(2)
    fake.add_topic("t", SLOW, HEALTHY)
    for broker in fake.brokers.values():
        broker.sasl = FakeSasl()
        broker.delay_ms = ROUND_TRIP_MS
    request.param(fake.brokers[SLOW])
    return fake


def batch() -> bytearray:
    return build_batch([Record(0, 0, None, b"x")])


def test_a_producer_sends_to_the_healthy_broker_at_its_rate(fake: FakeCluster) -> None:
    bootstrap = str(fake.brokers[HEALTHY].address)
    with fake.client(options(), bootstrap) as cluster, RawProducer(cluster) as producer:
        producer.identify()
        cluster.refresh(["t"])
        began_ms = fake.clock.monotonic_ms()
        producer.send(TopicPartition("t", 0), batch(), "slow")
        for number in range(ROUNDS_COUNT):
            producer.send(TopicPartition("t", 1), batch(), number)
            results: list[object] = []
            while not results:
                results = [each.tag for each in producer.poll(1_000)]
            assert results == [number]
        took_ms = fake.clock.monotonic_ms() - began_ms
        # To open the connection takes four round trips: versions, and three of the login.
        assert took_ms <= (ROUNDS_COUNT + 5) * (ROUND_TRIP_MS + 1)


def test_a_fetcher_reads_from_the_healthy_broker_at_its_rate(fake: FakeCluster) -> None:
    log = fake.partitions[TopicPartition("t", 1)]
    for _ in range(ROUNDS_COUNT):
        log.append(batch())
    bootstrap = str(fake.brokers[HEALTHY].address)
    positions = {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0}
    fake.partitions[TopicPartition("t", 0)].append(batch())
    with fake.client(options(), bootstrap) as cluster:
        cluster.refresh(["t"])
        with Fetcher(cluster, positions) as fetcher:
            began_ms = fake.clock.monotonic_ms()
            offsets: list[int] = []
            while len(offsets) < ROUNDS_COUNT:
                for fetched in fetcher.poll(1_000):
                    assert fetched.partition.partition == 1
                    offsets += range(fetched.fetch_offset, fetched.next_offset)
                    log.append(batch())
            took_ms = fake.clock.monotonic_ms() - began_ms
    assert took_ms <= (ROUNDS_COUNT + 5) * (ROUND_TRIP_MS + 1)


def poll_often(fetcher: Fetcher) -> None:
    for _ in range(1_000):
        fetcher.poll(1_000)


@pytest.mark.parametrize("timeout_ms", [0, 50, 1_000])
def test_a_poll_of_a_fetcher_keeps_to_its_time_out_where_no_broker_answers(timeout_ms: int) -> None:
    fake = FakeCluster(2)
    partitions = fake.add_topic("t", *[SLOW, HEALTHY] * 20)
    for broker in fake.brokers.values():
        vanish(broker)
    with fake.client() as cluster, Fetcher(cluster, dict.fromkeys(partitions, 0)) as fetcher:
        for _ in range(20):
            began_ms = fake.clock.monotonic_ms()
            assert fetcher.poll(timeout_ms) == []
            assert fake.clock.monotonic_ms() - began_ms <= timeout_ms + 1


def test_a_fetcher_gives_up_partitions_of_which_no_broker_answers_after_the_time_of_a_call() -> None:
    fake = FakeCluster(2)
    partitions = fake.add_topic("t", SLOW, HEALTHY)
    for broker in fake.brokers.values():
        vanish(broker)
    with fake.client() as cluster, Fetcher(cluster, dict.fromkeys(partitions, 0)) as fetcher:
        with pytest.raises(BrokerUnreachable):
            poll_often(fetcher)
        assert fake.clock.monotonic_ms() <= cluster.options.call_timeout_ms + 5_000


WAYS_OF_A_START: Final = WAYS | {"it does not answer where its logs start": is_silent_to(ApiKey.LIST_OFFSETS)}


@pytest.mark.parametrize("slow", list(WAYS_OF_A_START.values()), ids=list(WAYS_OF_A_START))
def test_a_consumer_starts_to_read_from_the_healthy_broker(
    slow: Callable[[FakeBroker], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeCluster(2)
    partitions = fake.add_topic("t", SLOW, HEALTHY)
    for broker in fake.brokers.values():
        broker.delay_ms = ROUND_TRIP_MS
    for partition in partitions:
        fake.partitions[partition].append(batch())
    slow(fake.brokers[SLOW])
    wake = WakeUp()
    desk = Desk(auto_offset_reset="earliest", on_orders=wake.ring)
    desk.start(0)
    desk.start(1)
    bootstrap = str(fake.brokers[HEALTHY].address)
    monkeypatch.setattr(fetch_loop, "Cluster", lambda _, options, **more: fake.client(options, bootstrap))
    loop = FetchLoop(desk.engine, bootstrap, desk.settings, wake, name="consumer of a test")
    try:
        offsets: list[int] = []
        while not offsets:
            assert fake.clock.monotonic_ms() < 1_000
            loop.turn()
            offsets = [message.offset for message in desk.streams[0] if message.partition == 1]
        assert offsets == [0]
    finally:
        loop.close(0)
        loop.run()


def test_offsets_are_looked_up_again_after_the_leader_has_moved_and_a_time_after_all_messages_is_the_end() -> None:
    fake = FakeCluster(2)
    (partition,) = fake.add_topic("t", SLOW)
    fake.partitions[partition].append(batch())
    with fake.client() as cluster:
        cluster.refresh(["t"])
        fake.move_leader(partition, HEALTHY)
        places = OffsetLookUps(cluster, IsolationLevel.READ_UNCOMMITTED)
        places.ask(partition, LATEST, 10_000)
        (moved,) = until_found(cluster, places)
        assert isinstance(moved.answers, BrokerRefused)
        places.ask(partition, LATEST, 10_000)
        (found,) = until_found(cluster, places)
        assert not isinstance(found.answers, ClientError)
        assert [answer.offset for answer in found.answers] == [1, -1]


def until_found(cluster: Cluster, places: OffsetLookUps) -> list[FoundOffsets]:
    for _ in range(100):
        found = places.poll()
        if found:
            return found
        look_ups = cluster.look_ups
        cluster.wait([*places.streams(), *look_ups.streams()], places.wait_ms(look_ups.wait_ms(1_000)))
    raise AssertionError("nothing was found")


def test_a_look_up_queries_another_broker_beside_one_that_is_silent() -> None:
    fake = FakeCluster(2)
    fake.add_topic("t", HEALTHY)
    is_silent_to(ApiKey.METADATA)(fake.brokers[SLOW])
    with fake.client() as cluster, RawProducer(cluster) as producer:
        producer.identify()
        producer.send(TopicPartition("t", 0), batch())
        (result,) = producer.flush()
        assert result.error is None
        assert fake.clock.monotonic_ms() <= 1_100


def test_a_look_up_waits_for_the_only_broker_however_slow_its_line_is() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    fake.brokers[1].delay_ms = 4_000
    with fake.client() as cluster, RawProducer(cluster) as producer:
        producer.send(TopicPartition("t", 0), batch())
        (result,) = producer.flush()
        assert result.error is None
        assert len(fake.dialled) == 2  # one for metadata, one to the leader
        assert [api for api, _ in fake.brokers[1].seen].count(ApiKey.METADATA) == 1


def test_a_deleted_topic_costs_others_nothing_and_is_refused() -> None:
    fake = FakeCluster()
    (gone, other) = (*fake.add_topic("gone", 1), *fake.add_topic("other", 1))
    with fake.client() as cluster, RawProducer(cluster) as producer:
        producer.identify()
        cluster.refresh(["gone", "other"])
        del fake.partitions[gone]
        began_ms = fake.clock.monotonic_ms()
        tags: list[object] = []
        refused: list[str] = []
        for number in range(2_000):
            producer.send(gone, batch(), None)
            producer.send(other, batch(), number)
            for result in producer.turn(0):
                if result.error is None:
                    tags.append(result.tag)
                else:
                    refused.append(str(result.error))
            if refused:
                break
            fake.clock.advance(5)
        assert set(refused) == {"topic gone does not exist"}
        took_ms = fake.clock.monotonic_ms() - began_ms
        assert cluster.options.unknown_topic_wait_ms <= took_ms <= cluster.options.unknown_topic_wait_ms + 1_300
        assert tags == list(range(len(tags)))
        assert len(tags) >= took_ms // 5 - 1, "each round has the result of its batch"


def test_batches_expire_while_the_only_broker_is_silent() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(delivery_timeout_ms=2_000)) as producer:
        producer.identify()
        cluster.refresh(["t"])
        is_silent_to(ApiKey.API_VERSIONS)(fake.brokers[1])
        producer.send(partition, batch())
        (result,) = producer.flush()
        assert isinstance(result.error, CallTimedOut)
        assert fake.clock.monotonic_ms() <= 3_000


def test_a_request_that_a_broker_reads_late_is_sent_once() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    leave_unread(fake.brokers[1])
    with fake.client() as cluster, RawProducer(cluster) as producer:
        for number in range(3):
            producer.send(partition, batch(), number)
            assert producer.poll(1_000) == []
        fake.brokers[1].unread_apis.clear()
        assert [result.base_offset for result in producer.flush()] == [0, 1, 2]
        assert fake.partitions[partition].end == 3
        assert [api for api, _ in fake.brokers[1].seen].count(ApiKey.PRODUCE) == 3


def test_a_request_that_a_broker_does_not_read_ends_with_its_time() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    leave_unread(fake.brokers[1])
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(delivery_timeout_ms=40_000)) as producer:
        producer.send(partition, batch())
        producer.poll(cluster.options.request_timeout_ms + 1_000)
        assert [connection.is_closed for connection in fake.brokers[1].connections].count(True) == 1
        fake.brokers[1].unread_apis.clear()
        (result,) = producer.flush()
        assert result.base_offset == 0


def test_a_batch_waits_no_longer_for_a_producer_id_than_for_its_delivery() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    is_silent_to(ApiKey.INIT_PRODUCER_ID)(fake.brokers[1])
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(delivery_timeout_ms=2_000)) as producer:
        with pytest.raises(CallTimedOut):
            producer.send(partition, batch())
        assert fake.clock.monotonic_ms() <= 2_001


def test_a_producer_does_not_turn_in_vain_while_a_topic_in_use_is_looked_up() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    it = Sending(fake, ProducerSettings(metadata_max_age_ms=10_000))
    it.send("t", b"v")
    it.flush()
    fake.clock.advance(600_000)  # a connection that was idle for so long is opened again
    fake.brokers[1].delay_ms = 300
    began_ms = fake.clock.monotonic_ms()
    for _ in range(10):
        it.engine.turn()
    assert fake.clock.monotonic_ms() >= began_ms + 600


def test_a_call_on_the_connection_of_a_look_up_leaves_the_look_up_its_response() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    fake.brokers[1].delay_ms = ROUND_TRIP_MS
    with fake.client() as cluster:
        cluster.refresh([])
        assert cluster.look_ups.topic("t") is None
        cluster.look_ups.poll()
        [other] = cluster.refresh(["t"], deadline=Deadline(fake.clock, 1_000))
        assert cluster.look_ups.streams()[0].has_buffered()
        assert cluster.look_ups.poll()
        assert cluster.look_ups.topic("t") == other
        assert len(fake.dialled) == 1


@pytest.mark.parametrize("delays_ms", [(1_200, 400), (400, 1_200), (1_500, 500)])
def test_a_look_up_uses_one_of_two_responses(delays_ms: tuple[int, int]) -> None:
    fake = FakeCluster(2)
    partitions = fake.add_topic("t", SLOW, HEALTHY)
    with fake.client() as cluster:
        cluster.refresh(["t"])
        for broker, delay_ms in zip(fake.brokers.values(), delays_ms, strict=True):
            cluster.connect_broker(broker.node_id, Deadline(fake.clock, 1_000))
            broker.delay_ms = delay_ms
        cluster.forget(["t"])
        with Fetcher(cluster, dict.fromkeys(partitions, 0)) as fetcher:
            for _ in range(10):
                assert fetcher.poll(500) == []
        assert cluster.look_ups.topic("t") is not None


def test_a_look_up_that_closes_a_silent_connection_ends_the_other_requests_on_it() -> None:
    fake = FakeCluster(2)
    (partition,) = fake.add_topic("t", SLOW)
    fake.add_topic("u", HEALTHY)
    with fake.client() as cluster:
        cluster.refresh(["t"])
        cluster.connect_broker(SLOW, Deadline(fake.clock, 1_000))
        is_silent_to(ApiKey.METADATA, ApiKey.LIST_OFFSETS)(fake.brokers[SLOW])
        places = OffsetLookUps(cluster, IsolationLevel.READ_UNCOMMITTED)
        places.ask(partition, LATEST)
        assert cluster.look_ups.topic("u") is None
        began_ms = fake.clock.monotonic_ms()
        (found,) = until_found(cluster, places)
        assert isinstance(found.answers, ClientError)
        assert fake.clock.monotonic_ms() - began_ms <= 1_100


def test_a_host_whose_first_ip_address_is_silent_is_reached_when_the_next_one_is_due() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.partitions[partition].append(batch())
    fake.brokers[1].silent_address_ms = 900
    with fake.client() as cluster:
        with RawProducer(cluster) as producer:
            producer.send(partition, batch())
            [result] = producer.poll(60_000)
            assert result.error is None
        assert fake.clock.monotonic_ms() <= 2 * 1_000  # for the metadata, and to the leader
        with Fetcher(cluster, {partition: 0}) as fetcher:
            assert fetcher.poll(60_000)
        assert fake.clock.monotonic_ms() <= 3 * 1_000
    with fake.client() as cluster:
        places = OffsetLookUps(cluster, IsolationLevel.READ_UNCOMMITTED)
        places.ask(partition, LATEST)
        until_found(cluster, places)
    assert fake.clock.monotonic_ms() <= 4 * 1_000


def test_a_connection_for_offsets_is_opened_further_when_the_next_ip_address_is_due() -> None:
    fake = FakeCluster(2)
    (partition,) = fake.add_topic("t", SLOW)
    fake.brokers[SLOW].silent_address_ms = 900
    with fake.client(bootstrap=str(fake.brokers[HEALTHY].address)) as cluster:
        cluster.refresh(["t"])
        places = OffsetLookUps(cluster, IsolationLevel.READ_UNCOMMITTED)
        places.ask(partition, LATEST)
        assert places.poll() == []
        assert places.wait_ms(60_000) == 900


def test_a_look_up_that_has_failed_opens_its_connection_further() -> None:
    fake = FakeCluster()
    fake.brokers[1].silent_address_ms = 5_000
    with fake.client() as cluster:
        look_ups = cluster.look_ups
        assert look_ups.topic("t") is None
        look_ups.poll()
        cluster.wait(look_ups.streams(), look_ups.wait_ms(60_000))
        assert look_ups.poll()
        with pytest.raises(CallTimedOut):
            look_ups.topic("t")
        assert look_ups.wait_ms(60_000) == 4_000


def test_a_fetch_without_a_response_ends_with_its_time_during_a_longer_poll() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.partitions[partition].append(batch())
    faults = [Fault.SILENCE]
    fake.brokers[1].fault_of = lambda api: faults.pop() if api is ApiKey.FETCH and faults else None
    with fake.client() as cluster, Fetcher(cluster, {partition: 0}) as fetcher:
        assert fetcher.poll(120_000)
        assert fake.clock.monotonic_ms() <= cluster.options.request_timeout_ms + 1_000


def test_a_response_that_comes_in_pieces_does_not_delay_what_is_due() -> None:
    fake = FakeCluster(2)
    for partition in fake.add_topic("t", SLOW, HEALTHY):
        for _ in range(20):
            fake.partitions[partition].append(batch())
    faults = [Fault.CUT_BEFORE]
    fake.brokers[HEALTHY].fault_of = lambda api: faults.pop() if api is ApiKey.FETCH and faults else None
    fake.brokers[SLOW].fetch_piece_bytes, fake.brokers[SLOW].fetch_piece_ms = 1, 1
    positions = {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0}
    with (
        fake.client(bootstrap=str(fake.brokers[HEALTHY].address)) as cluster,
        Fetcher(cluster, positions) as fetcher,
    ):

        def wait(streams: Iterable[R], timeout_ms: float) -> list[R]:
            """As a system, which returns what arrives within the time."""
            waited_for = list(streams)
            return fake.wait(waited_for, timeout_ms) or fake.wait(waited_for, 0)

        cluster.wait = wait
        [fetched] = fetcher.poll(60_000)
        assert fetched.partition == TopicPartition("t", 1)
        assert fake.clock.monotonic_ms() <= 500


def test_batches_expire_in_the_middle_of_a_poll() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    with fake.client() as cluster, RawProducer(cluster, ProducerOptions(delivery_timeout_ms=2_000)) as producer:
        producer.identify()
        cluster.refresh(["t"])
        is_silent_to(ApiKey.API_VERSIONS)(fake.brokers[1])
        producer.send(partition, batch())
        (result,) = producer.poll(60_000)
        assert isinstance(result.error, CallTimedOut)
        assert fake.clock.monotonic_ms() <= 3_000


def looked_up(cluster: Cluster, topic: str) -> str:
    """The outcome of one look-up."""
    while True:
        try:
            found = cluster.look_ups.topic(topic)
        except ClientError as error:
            return type(error).__name__
        if found is not None:
            return found.name
        if not cluster.look_ups.poll():
            cluster.wait(cluster.look_ups.streams(), cluster.look_ups.wait_ms(1_000))


def test_a_topic_that_was_missing_long_ago_may_be_missing_again_for_a_while() -> None:
    fake = FakeCluster()
    with fake.client() as cluster:
        assert looked_up(cluster, "t") == "BrokerRefused"
        fake.clock.advance(cluster.options.unknown_topic_wait_ms)
        assert looked_up(cluster, "t") == "BrokerRefused", "no caller has looked it up meanwhile"
        fake.add_topic("t", 1)
        fake.clock.advance(cluster.options.retry_backoff_ms)
        assert looked_up(cluster, "t") == "t"


@pytest.mark.parametrize("pause_ms", [50, 500, 1_200])
@pytest.mark.parametrize("delay_ms", [0, 2_500])
def test_a_topic_that_is_missing_for_a_while_is_unknown(pause_ms: int, delay_ms: int) -> None:
    fake = FakeCluster()
    fake.brokers[1].delay_ms = delay_ms
    with fake.client() as cluster:
        cluster.refresh([])
        began_ms = fake.clock.monotonic_ms()
        limit_ms = 2 * (cluster.options.unknown_topic_wait_ms + delay_ms + pause_ms)
        while looked_up(cluster, "t") != "UnknownTopic":
            fake.clock.advance(pause_ms)
            assert fake.clock.monotonic_ms() - began_ms <= limit_ms
        assert fake.clock.monotonic_ms() - began_ms >= cluster.options.unknown_topic_wait_ms


def test_a_partition_that_the_metadata_lacked_long_ago_is_looked_up_again() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    added = TopicPartition("t", 1)
    with fake.client() as cluster:
        assert looked_up(cluster, "t") == "t"
        assert cluster.look_ups.leader(added) is None
        assert looked_up(cluster, "t") == "t"
        fake.add_topic("t", 1, 1)
        fake.clock.advance(60_000)
        assert cluster.look_ups.leader(added) is None
        assert looked_up(cluster, "t") == "t"
        assert cluster.look_ups.leader(added) is not None
