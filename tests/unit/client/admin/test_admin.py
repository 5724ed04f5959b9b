from __future__ import annotations

import inspect
import re

import pytest

import ottla.admin
from ottla.client.admin.admin import Admin
from ottla.client.wire.errors import CallTimedOut
from ottla.model.error_code import ErrorCode
from ottla.model.errors import ConfigError
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


def test_admin_closes_its_own_connections_and_not_those_of_a_callers_cluster() -> None:
    fake = FakeCluster()
    with fake.client() as cluster:
        with Admin(cluster) as admin:
            admin.create_partitions({"t": 3})
        connections = fake.brokers[1].connections
        before = len(connections)
        Admin(cluster).create_partitions({"t": 4})
        assert len(connections) == before, "the caller's connection is still open"


def test_admin_refuses_settings_beside_a_cluster_that_has_them() -> None:
    with FakeCluster().client() as cluster, pytest.raises(ConfigError, match="has its settings already"):
        Admin(cluster, client_id="mine")
    with FakeCluster().client() as cluster, pytest.raises(ConfigError, match="has its settings already"):
        Admin(cluster, request_timeout_ms=500)


def test_every_call_of_admin_names_its_apis_by_their_numbers() -> None:
    calls = {name: each for name, each in inspect.getmembers(Admin, inspect.isfunction) if not name.startswith("_")}
    for name, call in calls.items():
        if name in {"close", "ensure_topic"}:
            continue
        named = re.findall(r"\b([A-Z_]{4,}) \((\d+)\)", call.__doc__ or "")
        assert named, f"{name} names no API"
        assert [(api, int(number)) for api, number in named] == [(api, int(ApiKey[api])) for api, _ in named]


def test_the_public_module_of_administration_has_what_admin_takes_and_returns() -> None:
    assert all(hasattr(ottla.admin, name) for name in ottla.admin.__all__)
    calls = {name: each for name, each in inspect.getmembers(Admin, inspect.isfunction) if not name.startswith("_")}
    hints = " ".join(str(each.__annotations__) for each in calls.values())
    of_ours = set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", hints))
    assert of_ours - {"TopicPartition"} <= set(ottla.admin.__all__)
