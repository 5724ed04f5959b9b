"""A line on which each answer takes longer than a caller's deadline, or almost as long as a request's time-out."""

from __future__ import annotations

import logging

import pytest

from ottla.client.fetching.fetcher import Fetcher
from ottla.client.producing.settings import ProducerSettings
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import BrokerUnreachable, CallTimedOut, ConnectionLost
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.request_metrics import RequestMeter
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.security.setting_names import client_security
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.unit.client.fake_cluster import FakeCluster, Fault
from tests.unit.client.fake_sasl import PASSWORD, USERNAME, FakeSasl
from tests.unit.client.producing.sending import Sending

DELAY_MS = 300
REQUEST_TIMEOUT_MS = 500
CLICKS = TopicPartition("clicks", 0)


def slow_cluster(brokers_count: int = 1, delay_ms: int = DELAY_MS) -> FakeCluster:
    fake = FakeCluster(brokers_count)
    fake.add_topic("clicks", 1)
    for broker in fake.brokers.values():
        broker.delay_ms = delay_ms
    return fake


def options(**more: int) -> ClientOptions:
    return ClientOptions(request_timeout_ms=REQUEST_TIMEOUT_MS, **more)  # type: ignore[arg-type]


def dial(fake: FakeCluster, given: ClientOptions) -> Connection:
    return Connection.dial(fake.brokers[1].address, fake.dial, given, fake.clock)


def test_a_producer_delivers_in_five_round_trips_over_two_connections() -> None:
    fake = slow_cluster()
    sending = Sending(fake, ProducerSettings(request_timeout_ms=REQUEST_TIMEOUT_MS, linger_ms=0))
    delivery = sending.send("clicks", b"x")
    sending.flush()
    assert delivery.wait(0).offset == 0
    assert [api for api, _ in fake.brokers[1].seen] == [
        ApiKey.API_VERSIONS,
        ApiKey.METADATA,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.API_VERSIONS,
        ApiKey.PRODUCE,
    ]
    assert len(fake.dialled) == 2
    assert fake.clock.monotonic_ms() < 6 * DELAY_MS


@pytest.mark.parametrize("delay_ms", [450, 499])
def test_a_producer_delivers_when_answers_take_almost_the_time_of_a_request(delay_ms: int) -> None:
    fake = slow_cluster(delay_ms=delay_ms)
    sending = Sending(fake, ProducerSettings(request_timeout_ms=REQUEST_TIMEOUT_MS, linger_ms=0))
    delivery = sending.send("clicks", b"x")
    sending.flush()
    assert delivery.wait(0).offset == 0
    assert len(fake.dialled) == 2


def test_a_call_succeeds_when_the_opening_takes_longer_than_one_request_may() -> None:
    fake = slow_cluster()
    fake.brokers[1].sasl = FakeSasl()
    names = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    security = client_security(names | {"sasl.username": USERNAME, "sasl.password": PASSWORD})
    cluster = fake.client(ClientOptions(request_timeout_ms=REQUEST_TIMEOUT_MS, security=security))
    [topic] = cluster.refresh(["clicks"])
    assert list(topic.partitions) == [0]
    assert len(fake.dialled) == 1
    assert fake.clock.monotonic_ms() == 5 * DELAY_MS  # versions, handshake, two rounds of SCRAM, metadata


def test_a_connection_is_opened_further_after_a_callers_deadline() -> None:
    fake = slow_cluster()
    cluster = fake.client(options())
    for _ in range(2):
        with pytest.raises(CallTimedOut):
            cluster.refresh_once(["clicks"], Deadline(fake.clock, 200))
    [topic] = cluster.refresh_once(["clicks"], Deadline(fake.clock, 400))
    assert list(topic.partitions) == [0]
    assert len(fake.dialled) == 1
    assert [api for api, _ in fake.brokers[1].seen] == [ApiKey.API_VERSIONS, ApiKey.METADATA]


def test_a_response_of_which_a_part_has_arrived_is_read_further() -> None:
    fake = slow_cluster()
    connection = dial(fake, options())
    with pytest.raises(CallTimedOut):
        connection.finish_opening(Deadline(fake.clock, 200))
    [transport] = fake.brokers[1].connections
    at_ms, frame = transport.arriving.popleft()
    transport.answers += frame[:10]
    transport.arriving.append((at_ms, frame[10:]))
    fake.clock.advance(50)
    with pytest.raises(CallTimedOut):
        connection.finish_opening(Deadline(fake.clock, 10))
    connection.finish_opening(Deadline(fake.clock, 200))
    answer = connection.call(ApiKey.METADATA, MetadataRequest(topics=[]), MetadataResponse, Deadline(fake.clock, 1000))
    assert answer.cluster_id == "fake"


def test_a_broker_that_does_not_answer_the_opening_is_given_up_after_a_requests_time() -> None:
    fake = slow_cluster()
    fake.brokers[1].fault_of = lambda api: Fault.SILENCE
    connection = dial(fake, options())
    for _ in range(2):
        with pytest.raises(CallTimedOut):
            connection.finish_opening(Deadline(fake.clock, 200))
    [transport] = fake.brokers[1].connections
    assert not transport.is_closed
    with pytest.raises(CallTimedOut):
        connection.finish_opening(Deadline(fake.clock, 200))
    assert not connection.is_open
    assert fake.brokers[1].connections[0].is_closed


def test_an_opening_may_take_no_longer_for_a_step_than_to_connect() -> None:
    fake = slow_cluster()
    connection = dial(fake, options(connect_timeout_ms=250))
    with pytest.raises(CallTimedOut):
        connection.finish_opening(Deadline(fake.clock, 10_000))
    assert not connection.is_open
    with pytest.raises(ConnectionLost):
        connection.receive(Deadline(fake.clock, 10))


def test_another_broker_is_tried_before_one_that_is_silent_while_it_is_opened() -> None:
    fake = slow_cluster(brokers_count=2, delay_ms=0)
    fake.brokers[1].fault_of = lambda api: Fault.SILENCE
    cluster = fake.client()
    with pytest.raises(BrokerUnreachable, match="nothing came"):
        cluster.refresh_once([], Deadline(fake.clock, 200))
    assert fake.dialled == [fake.brokers[1].address], "no time is left for another one"
    cluster.refresh_once([], Deadline(fake.clock, 200))
    assert fake.dialled == [fake.brokers[1].address, fake.brokers[2].address]


def test_another_broker_is_tried_before_one_that_could_not_be_reached() -> None:
    fake = slow_cluster(brokers_count=2, delay_ms=0)
    fake.brokers[1].is_down = True
    cluster = fake.client()
    cluster.refresh_once([], Deadline(fake.clock, 200))
    fake.clock.advance(cluster.options.connections_max_idle_ms)
    fake.dialled.clear()
    cluster.refresh_once([], Deadline(fake.clock, 200))
    assert fake.dialled == [fake.brokers[2].address]


def test_a_consumer_reads_over_one_connection_to_the_leader() -> None:
    fake = slow_cluster()
    fake.partitions[CLICKS].append(build_batch([Record(0, 0, None, b"x")]))
    cluster = fake.client(options())
    cluster.refresh(["clicks"])
    fake.dialled.clear()
    with Fetcher(cluster, {CLICKS: 0}, {CLICKS: 1}) as fetcher:
        fetched = [each for each in fetcher if each.records]
    assert fetched
    assert len(fake.dialled) == 1


def test_an_opening_whose_time_has_passed_makes_way_for_another_connection() -> None:
    fake = slow_cluster()
    fake.brokers[1].fault_of = lambda api: Fault.SILENCE
    cluster = fake.client(options())
    with pytest.raises(CallTimedOut):
        cluster.refresh_once(["clicks"], Deadline(fake.clock, 200))
    fake.brokers[1].fault_of = lambda api: None
    fake.clock.advance(REQUEST_TIMEOUT_MS)
    [topic] = cluster.refresh_once(["clicks"], Deadline(fake.clock, 1_000))
    assert list(topic.partitions) == [0]
    assert [transport.is_closed for transport in fake.brokers[1].connections] == [True, False]
    found = RequestMeter.snapshot([cluster.meter])
    assert (found.connections_opened_count, found.connections_failed_count) == (1, 1)


def test_a_connection_that_is_opened_further_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.client")
    fake = slow_cluster()
    cluster = fake.client(options())
    for _ in range(2):
        with pytest.raises(CallTimedOut):
            cluster.refresh_once(["clicks"], Deadline(fake.clock, 100))
    cluster.refresh_once(["clicks"], Deadline(fake.clock, 500))
    found = RequestMeter.snapshot([cluster.meter])
    assert (found.connections_opened_count, found.connections_failed_count) == (1, 0)
    assert caplog.messages == []
