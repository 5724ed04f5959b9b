"""What is counted of requests, on connections to brokers in memory."""

from __future__ import annotations

import pytest

from ottla.client.wire.errors import BrokerRefused, ClientError
from ottla.client.wire.request_metrics import RequestMeter
from ottla.client.wire.retrying import Deadline
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.protocol.api import ApiKey
from tests.unit.client.fake_cluster import FakeCluster, Fault


def test_requests_and_responses_are_counted_with_their_latency() -> None:
    fake = FakeCluster(1)
    fake.brokers[1].delay_ms = 30
    cluster = fake.client()
    for _ in range(3):
        cluster.refresh_once([], Deadline(fake.clock, 1_000))
    found = RequestMeter.snapshot([cluster.meter])
    assert (found.requests_count, found.responses_count, found.in_flight_count) == (4, 4, 0)
    assert (found.connections_opened_count, found.connections_failed_count) == (1, 0)
    latency = found.latencies["METADATA"]
    assert (latency.count, latency.min_ms, latency.average_ms, latency.max_ms) == (3, 30, 30, 30)
    assert (latency.p50_ms, latency.p99_ms) == (30, 30)
    [transport] = fake.brokers[1].connections
    assert found.request_bytes > 0 < found.response_bytes
    assert not transport.is_closed


def test_a_request_that_is_not_answered_is_not_in_flight_for_ever() -> None:
    fake = FakeCluster(1)
    cluster = fake.client()
    cluster.refresh_once([], Deadline(fake.clock, 1_000))
    fake.brokers[1].fault_of = lambda api: Fault.SILENCE
    with pytest.raises(ClientError):
        cluster.refresh_once([], Deadline(fake.clock, 1_000))
    found = RequestMeter.snapshot([cluster.meter])
    assert (found.requests_count, found.responses_count, found.in_flight_count) == (3, 2, 0)
    assert found.connections_lost_count == 1


def test_a_connection_whose_response_cannot_be_read_is_lost() -> None:
    fake = FakeCluster(1)
    cluster = fake.client()
    cluster.refresh_once([], Deadline(fake.clock, 1_000))
    connection = cluster.connect_any(Deadline(fake.clock, 1_000))
    with pytest.raises(WireError):
        connection.decode(ApiKey.METADATA, 1, memoryview(b""), object)
    assert not connection.is_open
    assert RequestMeter.snapshot([cluster.meter]).connections_lost_count == 1


def test_each_attempt_to_reach_a_broker_that_is_down_is_a_failure_and_each_but_the_first_a_retry() -> None:
    fake = FakeCluster(1)
    fake.brokers[1].is_down = True
    cluster = fake.client()
    with pytest.raises(ClientError):
        cluster.refresh([], deadline=Deadline(fake.clock, 100))
    found = RequestMeter.snapshot([cluster.meter])
    assert found.connections_failed_count == found.retries_count + 1 == found.errors["BrokerUnreachable"] >= 2


def test_errors_are_counted_by_the_brokers_code() -> None:
    meter = RequestMeter()
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        meter.on_retry(BrokerRefused(code, "t-0"))
    found = RequestMeter.snapshot([meter])
    assert found.errors == {"NOT_LEADER_OR_FOLLOWER": 2, "KAFKA_STORAGE_ERROR": 1}
    assert found.retries_count == 3


def test_percentiles_are_upper_bounds_that_no_request_exceeds() -> None:
    meter = RequestMeter()
    for latency_ms in [3] * 98 + [400, 90_000]:
        meter.on_received(ApiKey.PRODUCE, 10, latency_ms)
    latency = RequestMeter.snapshot([meter]).latencies["PRODUCE"]
    assert (latency.min_ms, latency.p50_ms, latency.p99_ms, latency.max_ms) == (3, 5, 500, 90_000)


def test_the_meters_of_several_threads_are_added() -> None:
    one, other = RequestMeter(), RequestMeter()
    one.on_received(ApiKey.FETCH, 10, 4)
    other.on_received(ApiKey.FETCH, 30, 2)
    other.on_received(ApiKey.HEARTBEAT, 5, 7)
    found = RequestMeter.snapshot([one, other])
    assert found.response_bytes == 45
    assert (found.latencies["FETCH"].count, found.latencies["FETCH"].min_ms) == (2, 2)
    assert list(found.latencies) == ["FETCH", "HEARTBEAT"]
    assert RequestMeter.snapshot([one]).latencies["FETCH"].count == 1, "a snapshot changes nothing"
