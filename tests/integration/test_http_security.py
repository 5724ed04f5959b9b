"""The registry and the admin listener with TLS and logins, beside a broker whose clients log in."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import jwt
import pytest
import trustme
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from cryptography.hazmat.primitives.asymmetric import ec

from ottla.broker.security.tls_acceptor import HANDSHAKES_OF_ADDRESS_MAX
from ottla.spark.schemas.registry_reader import RegistryReader, RegistryRefused, RegistryUnreachable
from ottla.spark.schemas.registry_security import RegistrySecurity
from ottla.testing.broker import RunningBroker
from tests.command_line import ottla
from tests.eventually import eventually
from tests.registry_process import serving

ORDER: Final = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]})
ISSUER, AUDIENCE = "https://issuer.example", "ottla"
KEY: Final = ec.generate_private_key(ec.SECP256R1())
PASSWORDS: Final = {"alice": "secret of alice", "bob": "secret: of bob"}


class Secured(NamedTuple):
    broker: RunningBroker
    folder: Path

    @property
    def registry_url(self) -> str:
        return self.broker.schema_registry_url

    def client(self, user: str, **more: str) -> SchemaRegistryClient:
        return SchemaRegistryClient(
            {
                "url": self.registry_url,
                "ssl.ca.location": str(self.folder / "ca.pem"),
                "basic.auth.user.info": f"{user}:{PASSWORDS[user]}",
                **more,
            }
        )

    def status(self, url: str, authorization: str | None = None, *, with_certificate: bool = False) -> int:
        return self.answer(url, authorization, with_certificate=with_certificate)[0]

    def answer(
        self, url: str, authorization: str | None = None, *, with_certificate: bool = False
    ) -> tuple[int, Mapping[str, str], str]:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if with_certificate:
            context.load_cert_chain(self.folder / "client.pem")
        # What a client says about its address is not believed.
        headers = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "http"}
        if authorization is not None:
            headers["Authorization"] = authorization
        request = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as response:
                return response.status, dict(response.headers), response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read().decode()


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def bearer(user: str, *, audience: str = AUDIENCE) -> str:
    now_s = int(time.time())
    claims = {"sub": user, "iss": ISSUER, "aud": audience, "iat": now_s, "exp": now_s + 600}
    return f"Bearer {jwt.encode(claims, KEY, algorithm='ES256', headers={'kid': 'one'})}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("http")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    client = authority.issue_cert("scraper", common_name="scraper")
    client.private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
    users = folder / "users"
    users.write_text("processes=secret of processes\n" + "".join(f"{n}={p}\n" for n, p in PASSWORDS.items()))
    users.chmod(0o600)
    key = jwt.get_algorithm_by_name("ES256").to_jwk(KEY.public_key(), as_dict=True)
    (folder / "keys.json").write_text(json.dumps({"keys": [{**key, "kid": "one"}]}))
    (folder / "processes.properties").write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=processes\n"
        f"sasl.password=secret of processes\nssl.ca.location={folder / 'ca.pem'}\n"
    )
    settings = {
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.admin.ssl.client.auth": "requested",
        "listener.name.admin.ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.plain.users.file": str(users),
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "authentication.method": "BASIC,BEARER",
        "authentication.roles": "read=User:bob;read=User:scraper;write=User:alice",
        "schema.registry.listeners": "https://127.0.0.1:0",
        "processes.command.config": str(folder / "processes.properties"),
        "audit.enable": "true",
        "audit.interval.ms": "200",
        "security.log.file": str(folder / "security.log"),
    }
    with RunningBroker(
        listen="SASL_SSL://127.0.0.1:0",
        also_listen=["127.0.0.1:0"],
        settings=settings,
        serves_metrics=True,
        admin_listen="https://127.0.0.1:0",
        log_path=folder / "broker.log",
    ) as running:
        plain = running.addresses["PLAINTEXT"]
        for user, password in PASSWORDS.items():
            ottla("user", "add", user, "--password-file", "-", "-b", plain, stdin=password)
        yield Secured(running, folder)


def test_processes_beside_the_broker_log_in_by_their_file(secured: Secured) -> None:
    producer = Producer({"bootstrap.servers": secured.broker.addresses["PLAINTEXT"]})
    producer.produce("counted", b"one")
    assert producer.flush(60) == 0

    assert secured.registry_url
    # Both connect to the first listener with a login.
    eventually(lambda: "topic.created topic=ottla-audit" in "\n".join(secured.broker.log_lines))
    made = "api=CREATE_TOPICS resources=TOPIC:_schemas"
    [line] = eventually(lambda: [line for line in secured.broker.log_lines if made in line])
    assert "principal=User:processes" in line
    assert "listener=SASL_SSL" in line


def test_confluents_client_registers_and_reads_by_the_roles_of_its_users(secured: Secured) -> None:
    with secured.client("alice") as alice, secured.client("bob") as bob:
        schema_id = alice.register_schema("orders-value", Schema(ORDER, "AVRO"))
        assert bob.get_schema(schema_id).schema_type == "AVRO"
        assert bob.lookup_schema("orders-value", Schema(ORDER, "AVRO")).schema_id == schema_id
        with pytest.raises(SchemaRegistryError) as refused:
            bob.set_compatibility("orders-value", "NONE")
        assert (refused.value.http_status_code, refused.value.error_code) == (403, 40301)
    wrong = {"basic.auth.user.info": "alice:wrong"}
    with secured.client("alice", **wrong) as client, pytest.raises(SchemaRegistryError) as refused:
        client.get_subjects()
    assert (refused.value.http_status_code, refused.value.error_code) == (401, 40101)


def test_decoder_of_columns_reads_schemas_by_its_login(secured: Secured) -> None:
    with secured.client("alice") as alice:
        schema_id = alice.register_schema("decoded", Schema(ORDER, "AVRO"))
    names = {"ssl.ca.location": str(secured.folder / "ca.pem")}
    login = {"basic.auth.user.info": f"bob:{PASSWORDS['bob']}"}
    reader = RegistryReader(secured.registry_url, RegistrySecurity.of({**names, **login}))
    assert json.loads(reader.by_id(schema_id).text)["name"] == "Order"
    with pytest.raises(RegistryRefused, match="40101"):
        RegistryReader(secured.registry_url, RegistrySecurity.of(names)).latest("decoded")
    with pytest.raises(RegistryUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        RegistryReader(secured.registry_url, RegistrySecurity.of(login)).latest("decoded")


def test_registry_refuses_clients_without_a_login_and_takes_tokens(secured: Secured) -> None:
    url = f"{secured.registry_url}/subjects"
    status, headers, _ = secured.answer(url)
    assert status == 401
    assert 'Basic realm="ottla"' in headers["www-authenticate"]
    assert secured.status(url, bearer("bob")) == 200
    assert secured.status(url, bearer("carol")) == 403
    assert secured.status(url, bearer("bob", audience="another")) == 401
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(url, timeout=60)


def test_registry_passes_changes_on_over_tls_with_the_clients_login(secured: Secured) -> None:
    config = secured.folder / "registry.properties"
    config.write_text(
        f"ssl.keystore.location={secured.folder / 'server.pem'}\nssl.truststore.location={secured.folder / 'ca.pem'}\n"
        "authentication.method=BASIC\nauthentication.roles=write=User:alice\n"
    )
    flags = ["--listen", "https://127.0.0.1:0", "--config", str(config)]
    flags += ["--command-config", str(secured.folder / "processes.properties")]
    # The one that started last writes.
    with serving(secured.broker.bootstrap, *flags) as writer, secured.client("alice") as alice:
        assert writer.url.startswith("https://")
        alice.register_schema("passed-on", Schema(ORDER, "AVRO"))
        assert secured.status(f"{writer.url}/subjects", basic("bob", PASSWORDS["bob"])) == 403
        assert secured.status(f"{writer.url}/subjects", basic("alice", PASSWORDS["alice"])) == 200
        line = eventually(lambda: next((line for line in writer.log if "registry.changed" in line), ""))
        assert "principal=User:alice peer=127.0.0.1 listener=REGISTRY method=POST" in line


def test_metrics_are_for_readers_and_health_is_for_every_client(secured: Secured) -> None:
    url = secured.broker.admin_url
    assert url.startswith("https://")
    assert secured.answer(f"{url}/healthz")[::2] == (200, "ok\n")
    status, headers, body = secured.answer(f"{url}/metrics")
    assert (status, "ottla_" in body) == (401, False)
    assert headers["WWW-Authenticate"].startswith(("Basic", "Bearer"))
    assert secured.status(f"{url}/metrics", basic("alice", PASSWORDS["alice"])) == 200
    status, _, body = secured.answer(f"{url}/metrics", basic("bob", PASSWORDS["bob"]))
    assert (status, "kafka_" in body) == (200, True)
    assert secured.status(f"{url}/metrics", basic("bob", "wrong")) == 401
    assert secured.status(f"{url}/metrics", bearer("bob")) == 200
    assert secured.status(f"{url}/metrics", bearer("carol")) == 403
    assert secured.status(f"{url}/metrics", with_certificate=True) == 200


def test_handshakes_that_do_not_end_keep_no_client_out(secured: Secured) -> None:
    for url in (secured.broker.admin_url, secured.registry_url):
        host, port = url.removeprefix("https://").split(":")
        with ExitStack() as opened:
            for _ in range(HANDSHAKES_OF_ADDRESS_MAX + 10):
                connection = opened.enter_context(socket.create_connection((host, int(port)), timeout=60))
                # The start of a ClientHello.
                connection.sendall(b"\x16\x03\x01")
            path = "/healthz" if url == secured.broker.admin_url else "/schemas/types"
            assert secured.status(url + path, basic("bob", PASSWORDS["bob"])) == 200


@pytest.mark.parametrize("of_registry", [False, True])
def test_client_without_tls_is_disconnected(secured: Secured, of_registry: bool) -> None:
    url = secured.registry_url if of_registry else secured.broker.admin_url
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(url.replace("https://", "http://") + "/", timeout=60)


def test_logins_refusals_and_changes_are_in_the_security_log_without_secrets(secured: Secured) -> None:
    with secured.client("alice") as alice:
        alice.register_schema("logged", Schema(ORDER, "AVRO"))
    assert secured.status(f"{secured.broker.admin_url}/metrics", bearer("dora")) == 403
    assert secured.status(f"{secured.registry_url}/subjects", basic("eve", "a guess")) == 401

    def events() -> set[tuple[object, ...]]:
        lines = (secured.folder / "security.log").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return {(e["event"], e.get("principal") or e.get("user"), e["peer"], e["listener"]) for e in found}

    expected = {
        ("changed", "User:alice", "127.0.0.1", "REGISTRY"),
        ("denied", "User:dora", "127.0.0.1", "ADMIN"),
        ("login_failed", "eve", "127.0.0.1", "REGISTRY"),
    }
    eventually(events, lambda found: expected <= found)
    texts = (secured.folder / "security.log").read_text() + (secured.folder / "broker.log").read_text()
    for secret in (*PASSWORDS.values(), "a guess", "secret of processes", bearer("bob")[7:40]):
        assert secret not in texts


def test_replaced_certificate_is_served_by_both_after_its_file_has_changed(secured: Secured) -> None:
    other = trustme.CA()
    other.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(secured.folder / "server.pem"))
    [ready] = [line for line in secured.broker.log_lines if "registry.ready" in line]
    for pid in (secured.broker.pid, int(ready.rpartition("pid=")[2].split()[0])):
        os.kill(pid, signal.SIGHUP)
    context = ssl.create_default_context(cadata=other.cert_pem.bytes().decode())
    for url in (f"{secured.broker.admin_url}/healthz", f"{secured.registry_url}/"):

        def code(url: str = url) -> int:
            try:
                with urllib.request.urlopen(url, timeout=60, context=context) as response:
                    return int(response.status)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code
            except urllib.error.URLError:
                return 0

        eventually(code, lambda status: status in (200, 401))
