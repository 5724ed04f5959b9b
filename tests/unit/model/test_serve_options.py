from __future__ import annotations

import pytest

from ottla.model.errors import ConfigError
from ottla.model.listener import Listener, parse_address
from ottla.model.serve_options import DEFAULT_DATA_DIR, serve_options
from ottla.model.settings import BrokerSettings


def test_broker_listens_on_loopback_by_default() -> None:
    options = serve_options(BrokerSettings())
    assert options.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert options.data_dir == DEFAULT_DATA_DIR
    assert options.advertised == ()


def test_flags_win_over_settings() -> None:
    settings = BrokerSettings.of({"listeners": "PLAINTEXT://127.0.0.1:1", "log.dirs": "/from/file"})
    options = serve_options(settings, data_dir="/from/flag", listen=(parse_address("localhost:0"),))
    assert options.listeners == (Listener("PLAINTEXT", "localhost", 0),)
    assert options.data_dir == "/from/flag"


@pytest.mark.parametrize("address", ["0.0.0.0:9092", ":9092", "10.1.2.3:9092", "[::]:9092", "example.com:9092"])
def test_open_address_is_refused_and_the_hint_names_the_flag(address: str) -> None:
    with pytest.raises(ConfigError, match="refused to listen") as caught:
        serve_options(BrokerSettings(), listen=(parse_address(address),))
    assert caught.value.hint is not None
    assert "--insecure-listen" in caught.value.hint
    accepted = serve_options(BrokerSettings(), listen=(parse_address(address),), insecure_listen=True)
    assert accepted.listeners == (parse_address(address),)


def test_open_address_in_a_file_is_refused_too() -> None:
    with pytest.raises(ConfigError, match="every interface"):
        serve_options(BrokerSettings.of({"listeners": "PLAINTEXT://:9092"}))


def test_controllers_listener_is_left_out() -> None:
    settings = BrokerSettings.of(
        {
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
    )
    options = serve_options(settings)
    assert options.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert options.advertised == (Listener("PLAINTEXT", "localhost", 9092),)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"listeners": "A://127.0.0.1:9092"}, "has no protocol for A"),
        ({"listeners": "A://127.0.0.1:1", "listener.security.protocol.map": "A:TLS"}, "'TLS' is not a protocol"),
        ({"controller.listener.names": "PLAINTEXT"}, "only the controller's"),
        ({"advertised.listeners": "PLAINTEXT://:9092"}, "no address that a client can reach"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "no address that a client can reach"),
        ({"advertised.listeners": "PLAINTEXT://h:0"}, "no address that a client can reach"),
        ({"advertised.listeners": "OTHER://h:1"}, "not among the listeners"),
        ({"log.dirs": "/a,/b"}, "2 directories"),
        ({"log.dirs": " "}, "0 directories"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_opened(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        serve_options(BrokerSettings.of(given))
    assert caught.value.hint


def test_own_listener_name_with_a_plaintext_protocol_is_served() -> None:
    settings = BrokerSettings.of(
        {"listeners": "INSIDE://127.0.0.1:1", "listener.security.protocol.map": "INSIDE:PLAINTEXT"}
    )
    assert serve_options(settings).listeners == (Listener("INSIDE", "127.0.0.1", 1),)


SECURE = {
    "listeners": "SASL_SSL://:9093,INTERNAL://:9094",
    "listener.security.protocol.map": "INTERNAL:SSL,SASL_SSL:SASL_SSL",
}


def test_listeners_on_which_clients_prove_their_identity_may_leave_loopback() -> None:
    required = {"listener.name.internal.ssl.client.auth": "required"}
    options = serve_options(BrokerSettings.of({**SECURE, **required}))
    assert [each.protocol for each in options.listeners] == ["SASL_SSL", "SSL"]


def test_listener_that_only_encrypts_may_not_leave_loopback() -> None:
    with pytest.raises(ConfigError, match="TLS encrypts, but anyone who reaches port 9094") as caught:
        serve_options(BrokerSettings.of(SECURE))
    assert "ssl.client.auth=required" in (caught.value.hint or "")
    assert serve_options(BrokerSettings.of(SECURE), insecure_listen=True).listeners[1].protocol == "SSL"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, None),
        ({"inter.broker.listener.name": "internal"}, "INTERNAL"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "SASL_SSL"),
    ],
)
def test_listener_for_brokers_is_found_by_its_name_or_protocol(given: dict[str, str], name: str | None) -> None:
    options = serve_options(BrokerSettings.of({**SECURE, **given}), insecure_listen=True)
    assert options.inter_broker_name == name
    assert options.inter_broker_listener.name == (name or "SASL_SSL")


def test_replicas_fetch_from_the_former_listener_while_the_brokers_change() -> None:
    one = {"inter.broker.listener.name": "INTERNAL"}
    both = {**one, "inter.broker.former.listener.name": "sasl_ssl"}
    found = [serve_options(BrokerSettings.of({**SECURE, **given}), insecure_listen=True) for given in ({}, one, both)]
    assert [options.replica_listeners for options in found] == [set(), {"INTERNAL"}, {"INTERNAL", "SASL_SSL"}]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"inter.broker.listener.name": "OTHER"}, "OTHER is not among the listeners"),
        ({"inter.broker.former.listener.name": "SASL_SSL"}, "inter.broker.listener.name is not"),
        (
            {"inter.broker.listener.name": "INTERNAL", "inter.broker.former.listener.name": "OTHER"},
            "OTHER is not among the listeners",
        ),
        ({"security.inter.broker.protocol": "PLAINTEXT"}, "PLAINTEXT is not among the listeners"),
        ({"inter.broker.listener.name": "INTERNAL", "security.inter.broker.protocol": "SSL"}, "are both set"),
        ({"schema.registry.listeners": "http://127.0.0.1:8081"}, "reach it by a PLAINTEXT listener"),
    ],
)
def test_listeners_that_others_need_must_exist(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        serve_options(BrokerSettings.of({**SECURE, **given}), insecure_listen=True)
    assert caught.value.hint


BOTH = "SASL_SSL://127.0.0.1:1,PLAINTEXT://127.0.0.1:2"
INSIDE = "INTERNAL://127.0.0.1:1,SASL_SSL://127.0.0.1:2"
BROKERS = {"inter.broker.listener.name": "INTERNAL"}
REGISTRY = {"schema.registry.listeners": "http://127.0.0.1:8081"}
BASIC = {"authentication.method": "BASIC"}
CONFIG = {"processes.command.config": "/etc/ottla/client.properties"}


@pytest.mark.parametrize(
    ("given", "listener"),
    [
        ({}, 0),
        ({"listeners": BOTH}, 1),
        ({"listeners": BOTH, **CONFIG}, 0),
        ({"listeners": "PLAINTEXT://127.0.0.1:2,SSL://127.0.0.1:1", **CONFIG}, 1),
        ({**SECURE, "listeners": INSIDE, **BROKERS, **CONFIG}, 1),
        ({**SECURE, "listeners": "INTERNAL://127.0.0.1:1", **BROKERS, **CONFIG}, 0),
        ({"listeners": BOTH, **REGISTRY, **BASIC, **CONFIG}, 0),
        ({**REGISTRY, **BASIC, "listener.name.registry.authentication.method": "NONE"}, 0),
    ],
)
def test_processes_beside_the_broker_connect_in_plain_text_or_by_their_file(
    given: dict[str, str], listener: int
) -> None:
    options = serve_options(BrokerSettings.of({"audit.enable": "true"} | given))
    assert options.processes_listener_index == listener


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"listeners": "SASL_SSL://127.0.0.1:1", "audit.enable": "true"}, "reach it by a PLAINTEXT listener"),
        (
            {"listeners": "SSL://127.0.0.1:1", "schema.registry.listeners": "http://127.0.0.1:8081"},
            "reach it by a PLAINTEXT listener",
        ),
        ({"audit.enable": "true", **CONFIG}, "no listener has TLS or a login"),
        ({**REGISTRY, **BASIC}, "PLAINTEXT://127.0.0.1:9092, to which it connects, has none"),
        ({**REGISTRY, **BASIC, **CONFIG, "listeners": "SSL://127.0.0.1:1"}, "to which it connects, has none"),
    ],
)
def test_processes_beside_the_broker_need_a_listener(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        serve_options(BrokerSettings.of(given))


TLS_HTTP = Listener("ADMIN", "192.0.2.1", 9404, "SSL")
PLAIN_HTTP = TLS_HTTP._replace(protocol="PLAINTEXT")


@pytest.mark.parametrize(
    ("listener", "given", "problem"),
    [
        (PLAIN_HTTP, {}, "anyone who reaches port 9404 could read"),
        (TLS_HTTP, {}, "anyone who reaches port 9404 could read"),
        (TLS_HTTP, {"ssl.client.auth": "requested"}, "anyone who reaches port 9404 could read"),
        (PLAIN_HTTP, {"authentication.method": "BASIC"}, "passwords and tokens would be readable on the network"),
        (PLAIN_HTTP, {"ssl.client.auth": "required"}, "anyone who reaches port 9404 could read"),
    ],
)
def test_http_on_other_addresses_needs_tls_and_a_login(listener: Listener, given: dict[str, str], problem: str) -> None:
    settings = BrokerSettings.of(given)
    with pytest.raises(ConfigError, match=problem) as caught:
        serve_options(settings, admin_listener=listener)
    assert "--insecure-listen" in (caught.value.hint or "")
    assert serve_options(settings, admin_listener=listener, insecure_listen=True).admin_listener == listener
    assert serve_options(settings, admin_listener=listener._replace(host="127.0.0.1")).admin_listener is not None


@pytest.mark.parametrize(
    "given",
    [
        {"authentication.method": "BASIC"},
        {"ssl.client.auth": "required"},
        {"listener.name.admin.ssl.client.auth": "required", "ssl.client.auth": "none"},
    ],
)
def test_http_with_tls_and_a_login_may_leave_loopback(given: dict[str, str]) -> None:
    assert serve_options(BrokerSettings.of(given), admin_listener=TLS_HTTP).admin_listener == TLS_HTTP


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"authentication.roles": "read=*"}, "authentication.roles is set, and no client can log in"),
        ({"authentication.method": "NONE,BASIC"}, "NONE is named with BASIC"),
        ({"authentication.method": "BEARER"}, "BEARER needs sasl.oauthbearer.jwks.endpoint.url"),
    ],
)
def test_logins_over_http_that_contradict_each_other_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        serve_options(BrokerSettings.of(given), admin_listener=Listener("ADMIN", "127.0.0.1", 9404))
    assert caught.value.hint


def test_listener_of_a_flag_has_the_protocol_that_the_map_gives_its_name() -> None:
    settings = BrokerSettings.of({"listener.security.protocol.map": "PLAINTEXT:SASL_SSL,SSL:SSL"})
    flags = tuple(Listener(name, "127.0.0.1", 1, name[:9]) for name in ("PLAINTEXT", "PLAINTEXT_2", "SSL"))
    protocols = [each.protocol for each in serve_options(settings, listen=flags).listeners]
    assert protocols == ["SASL_SSL", "SASL_SSL", "SSL"]


SHARED = {"tree.socket": "/run/tree.socket", "listeners": "PLAINTEXT://127.0.0.1:9093"}


def test_shared_listeners_have_the_protocol_of_the_listener_of_their_name() -> None:
    texts = {**SHARED, "listeners": "IN://127.0.0.1:9093", "listener.security.protocol.map": "IN:SASL_PLAINTEXT"}
    options = serve_options(BrokerSettings.of({**texts, "shared.listeners": "in://127.0.0.1:9092"}))
    assert options.shared == (Listener("IN", "127.0.0.1", 9092, "SASL_PLAINTEXT"),)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({**SHARED, "shared.listeners": "OTHER://127.0.0.1:9092"}, "OTHER is not among the listeners PLAINTEXT"),
        ({**SHARED, "shared.listeners": "PLAINTEXT://127.0.0.1:0"}, "names no port"),
        ({**SHARED, "shared.listeners": "PLAINTEXT://0.0.0.0:9092"}, r"refused to listen on 0\.0\.0\.0"),
        ({"shared.listeners": "PLAINTEXT://127.0.0.1:9092"}, "shares no tree"),
    ],
)
def test_shared_listeners_that_no_other_broker_has_or_none_may_have_are_refused(
    given: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        serve_options(BrokerSettings.of(given))
