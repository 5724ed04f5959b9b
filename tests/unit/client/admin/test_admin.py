from __future__ import annotations

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.errors import CallTimedOut
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from tests.unit.client.fake_cluster import FakeCluster


def test_admin_asks_again_while_the_broker_is_not_the_controller() -> None:
    fake = FakeCluster()
    problems = iter([ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER])
    fake.brokers[1].error_of = lambda api, _: next(problems, None) if api is ApiKey.CREATE_PARTITIONS else None
    with fake.client() as cluster:
        assert Admin(cluster).create_partitions({"t": 3}) == {"t": None}
    assert next(problems, None) is None


def test_admin_gives_up_in_time_on_a_broker_that_is_not_the_controller() -> None:
    fake = FakeCluster()
    fake.brokers[1].error_of = lambda _api, _partition: ErrorCode.NOT_CONTROLLER
    with fake.client() as cluster, pytest.raises(CallTimedOut, match="NOT_CONTROLLER"):
        Admin(cluster).create_partitions({"t": 3}, timeout_ms=5_000)


def test_admin_returns_the_topics_that_were_grown_beside_one_that_was_not() -> None:
    fake = FakeCluster()
    fake.brokers[1].error_of = lambda _, partition: ErrorCode.NOT_CONTROLLER if partition.topic == "b" else None
    with fake.client() as cluster:
        refused = Admin(cluster).create_partitions({"a": 3, "b": 3})
    assert refused["a"] is None
    assert refused["b"] is not None
    assert refused["b"].code is ErrorCode.NOT_CONTROLLER
    assert refused["b"].is_retriable
