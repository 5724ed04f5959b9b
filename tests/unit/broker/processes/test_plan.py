from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import pytest

from ottla.broker.processes.plan import admin_address, has_several_replicas, planned, require_supported, settings_of
from ottla.model.errors import ConfigError
from ottla.model.identifiers import NodeId
from ottla.model.listener import Listener
from ottla.model.serve_options import ServeOptions, serve_options
from ottla.model.settings import BrokerSettings
from ottla.storage.directory.process_places import BrokerPlace, ProcessPlaces

PLAIN = Listener("PLAINTEXT", "127.0.0.1", 9092)
SECOND = Listener("INSIDE", "127.0.0.1", 9093)
FIRST_ID = NodeId(4)


def options(
    *listeners: Listener, texts: Mapping[str, str] | None = None, admin_port: int | None = None
) -> ServeOptions:
    found = {
        "listeners": ",".join(map(str, listeners or (PLAIN,))),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        **(texts or {}),
    }
    admin = None if admin_port is None else Listener("ADMIN", "127.0.0.1", admin_port)
    return serve_options(BrokerSettings.of(found), data_dir="/data", admin_listener=admin)


def no_free_port(_: str) -> int:
    raise AssertionError("the ports were given")


def new(brokers_count: int, given: ServeOptions) -> ProcessPlaces:
    return planned(None, brokers_count, FIRST_ID, given, no_free_port)


def test_first_broker_has_the_data_directory_and_its_id_and_the_others_follow() -> None:
    places = new(3, options())
    assert places.listeners == (PLAIN,)
    assert places.brokers == (
        BrokerPlace(NodeId(4), ".", (9093,)),
        BrokerPlace(NodeId(5), "processes/broker-5", (9094,)),
        BrokerPlace(NodeId(6), "processes/broker-6", (9095,)),
    )
    assert [each.path("/data") for each in places.brokers[:2]] == ["/data", "/data/processes/broker-5"]


def test_own_ports_leave_out_those_of_other_listeners_and_servers() -> None:
    given = options(PLAIN, SECOND, texts={"schema.registry.listeners": "http://127.0.0.1:9094"}, admin_port=9096)
    assert [each.ports for each in new(2, given).brokers] == [(9095, 9098), (9099, 9100)]


def test_free_ports_are_those_that_the_system_gives_and_are_kept() -> None:
    numbers = count(40_000)
    given = options(PLAIN._replace(port=0))
    first = planned(None, 2, FIRST_ID, given, lambda _: next(numbers))
    assert first.listeners[0].port == 40_000
    assert [each.ports for each in first.brokers] == [(40_001,), (40_002,)]
    assert planned(first, None, FIRST_ID, given, no_free_port) == first


def test_further_brokers_leave_the_others_as_they_are() -> None:
    before = new(2, options())
    after = planned(before, 4, FIRST_ID, options(), no_free_port)
    assert after.brokers[:2] == before.brokers
    assert [each.ports for each in after.brokers[2:]] == [(9095,), (9096,)]


def test_fewer_brokers_are_the_first_ones() -> None:
    before = new(3, options())
    after = planned(before, 1, FIRST_ID, options(), no_free_port)
    assert after.brokers == before.brokers[:1]


def test_other_listeners_give_all_brokers_other_ports() -> None:
    before = new(2, options())
    after = planned(before, None, FIRST_ID, options(PLAIN._replace(port=19_092)), no_free_port)
    assert [each.ports for each in after.brokers] == [(19_093,), (19_094,)]
    assert [each.node_id for each in after.brokers] == [each.node_id for each in before.brokers]


def test_ports_above_the_last_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="the ports after 65534 do not suffice"):
        new(2, options(PLAIN._replace(port=65_534)))


def test_broker_has_its_own_ports_and_shares_the_given_ones() -> None:
    found = settings_of(new(2, options(PLAIN, SECOND)), 1, options(PLAIN, SECOND), "/data/processes/tree.socket")
    assert found["node.id"] == "5"
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9096,INSIDE://127.0.0.1:9097"
    assert found["shared.listeners"] == "PLAINTEXT://127.0.0.1:9092,INSIDE://127.0.0.1:9093"
    assert found["tree.socket"] == "/data/processes/tree.socket"
    assert "advertised.listeners" not in found
    # What a broker with these settings serves is what the user has given.
    broker = serve_options(BrokerSettings.of({**found}), data_dir="/data")
    assert [each.protocol for each in (*broker.listeners, *broker.shared)] == ["PLAINTEXT"] * 4


def test_advertised_ports_follow_as_the_own_ones_do() -> None:
    given = options(texts={"advertised.listeners": "PLAINTEXT://kafka.example:19092"})
    places = new(2, given)
    found = [settings_of(places, index, given, "/s")["advertised.listeners"] for index in (0, 1)]
    assert found == ["PLAINTEXT://kafka.example:19093", "PLAINTEXT://kafka.example:19094"]


def test_topics_have_one_replica_unless_settings_say_otherwise() -> None:
    given = options(texts={"offsets.topic.replication.factor": "2"})
    found = settings_of(new(2, given), 0, given, "/s")
    assert found["default.replication.factor"] == found["transaction.state.log.replication.factor"] == "1"
    assert found["transaction.state.log.min.isr"] == "1"
    assert "offsets.topic.replication.factor" not in found
    assert has_several_replicas(given)
    assert not has_several_replicas(options())


def test_more_replicas_than_processes_are_refused() -> None:
    given = options(texts={"offsets.topic.replication.factor": "3"})
    require_supported(given, 3)
    with pytest.raises(ConfigError, match=r"offsets\.topic\.replication\.factor=3, and there are 2 processes"):
        require_supported(given, 2)


def test_first_broker_has_the_schema_registry() -> None:
    given = options(texts={"schema.registry.listeners": "http://127.0.0.1:8081"})
    places = new(2, given)
    assert "schema.registry.listeners" not in settings_of(places, 0, given, "/s")
    assert settings_of(places, 1, given, "/s")["schema.registry.listeners"] == ""
    # An empty text is that of a broker without one.
    assert options(texts={"schema.registry.listeners": ""}).registry is None


def test_each_broker_has_its_own_security_log() -> None:
    given = options(texts={"security.log.file": "/log/security"})
    places = new(2, given)
    assert "security.log.file" not in settings_of(places, 0, given, "/s")
    assert settings_of(places, 1, given, "/s")["security.log.file"] == "/log/security.5"


def test_admin_listeners_are_at_the_given_port_and_those_after_it() -> None:
    given = options(admin_port=9700)
    assert [getattr(admin_address(given, index), "port", None) for index in (0, 1)] == [9700, 9701]
    assert admin_address(options(admin_port=0), 1) == Listener("ADMIN", "127.0.0.1", 0)
    assert admin_address(options(), 1) is None
