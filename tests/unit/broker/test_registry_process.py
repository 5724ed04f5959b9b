from __future__ import annotations

import pytest

from ottla.broker.child_processes import REGISTRY_COMMAND, registry_command
from ottla.model.errors import ConfigError
from ottla.model.http_settings import AUTHENTICATION_METHOD
from ottla.model.serve_options import RegistryOptions, serve_options
from ottla.model.setting_sources import RawSetting, resolve
from ottla.model.settings import BrokerSettings


def options(insecure_listen: bool = False, **given: str) -> RegistryOptions | None:
    raw = [RawSetting(name.replace("_", "."), text, "the test") for name, text in given.items()]
    return serve_options(resolve([raw])[0], insecure_listen=insecure_listen).registry


def words(found: RegistryOptions | None, broker: tuple[str, int] = ("127.0.0.1", 9092)) -> str:
    assert found is not None
    return " ".join(registry_command(found, broker)[len(REGISTRY_COMMAND) :])


def test_broker_without_the_setting_has_no_registry() -> None:
    assert options() is None


def test_registry_is_told_where_its_broker_is_and_what_the_settings_say() -> None:
    found = options(schema_registry_listeners="http://127.0.0.1:8081")
    assert words(found) == "--bootstrap-server 127.0.0.1:9092 --topic _schemas --listen 127.0.0.1:8081"
    found = options(
        insecure_listen=True,
        schema_registry_listeners="http://[::]:0",
        schema_registry_topic="schemas",
        schema_registry_topic_replication_factor="3",
        schema_registry_advertised_url="http://one:8081",
    )
    assert words(found, ("::1", 1)) == (
        "--bootstrap-server [::1]:1 --topic schemas --listen [::]:0 --replication-factor 3 "
        "--advertise http://one:8081 --insecure-listen"
    )


def test_registry_of_a_secured_broker_has_a_file_of_settings() -> None:
    found = options(schema_registry_listeners="http://127.0.0.1:8081")
    assert found is not None
    command = registry_command(found, ("127.0.0.1", 9092), "/etc/ottla/registry.properties")
    assert command[command.index("--command-config") + 1] == "/etc/ottla/registry.properties"


@pytest.mark.parametrize("address", ["http://0.0.0.0:8081", "http://[::]:8081", "http://:8081"])
def test_registry_on_every_interface_needs_an_address_for_others(address: str) -> None:
    with pytest.raises(ConfigError, match="no address that others can reach") as raised:
        options(insecure_listen=True, schema_registry_listeners=address)
    assert "schema.registry.advertised.url" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://0.0.0.0:8081", "refused to serve schemas"),
        ("ftp://127.0.0.1:8081", "offered are http and https"),
        ("https://0.0.0.0:8081", "refused to serve schemas"),
        ("127.0.0.1", "schema.registry.listeners: .*the port is missing"),
        ("http://127.0.0.1:8081,http://127.0.0.1:8082", "schema.registry.listeners"),
    ],
)
def test_address_that_cannot_be_served_is_refused(address: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        options(schema_registry_listeners=address)


ISSUER = {
    "sasl.oauthbearer.jwks.endpoint.url": "file:///keys",
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
    "sasl.oauthbearer.expected.audience": "kafka",
}
SECURED = {
    "listeners": "SASL_SSL://127.0.0.1:9092",
    "processes.command.config": "/etc/ottla/client.properties",
    "schema.registry.listeners": "https://127.0.0.1:8081",
    "ssl.keystore.location": "/etc/ottla/broker.pem",
    "ssl.key.password": "opens it",
    "num.partitions": "4",
    "super.users": "User:admin",
    "listener.name.registry.authentication.method": "BASIC,BEARER",
    "listener.name.admin.ssl.client.auth": "none",
    **ISSUER,
}


def test_registry_gets_the_settings_of_its_listener_on_its_input() -> None:
    found = serve_options(BrokerSettings.of(SECURED)).registry
    assert found is not None
    assert "opens it" not in words(found)
    assert "--listen https://127.0.0.1:8081" in words(found)
    assert found.settings_texts == {
        "ssl.keystore.location": "/etc/ottla/broker.pem",
        "ssl.key.password": "opens it",
        "super.users": "User:admin",
        "authentication.method": "BASIC,BEARER",
        **ISSUER,
    }
    again = BrokerSettings.of(found.settings_texts)
    assert again[AUTHENTICATION_METHOD] == ("BASIC", "BEARER")
    assert "opens it" not in repr(found)
