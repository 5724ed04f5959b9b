"""Real clients over TLS and SASL: one broker with listeners of all protocols, and users that log in by each mechanism.

The users and the topic of each test are made by Ottla's own client on the plain listener.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import jwt
import pytest
import trustme
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import ec
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from ottla.client.admin.access import set_password
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.security.mechanism import SaslMechanism
from ottla.security.secret import Secret
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.interop.clients.go_client import go_scenarios, kafka_go_scenarios
from tests.interop.clients.javascript_client import javascript_scenarios
from tests.interop.clients.scenarios import ENDS_WITHIN_S
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.java_tool import CONFIGS_COMMAND, CONSOLE_CONSUMER, CONSOLE_PRODUCER, run_tool
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.kcat import KcatUnavailable, find_kcat
from tests.peers.unavailable import PeerUnavailable

pytestmark = [pytest.mark.interop, pytest.mark.timeout(BROUGHT_WITHIN_S + ENDS_WITHIN_S)]

VALUES: Final = [b"value %d" % number for number in range(50)] + [b"x" * 400_000]
DEADLINE_S: Final = 60.0
USER, PASSWORD = "alice", "secret of alice"


class Way(NamedTuple):
    """How a client reaches the broker: a listener's protocol, and a mechanism where it has SASL."""

    protocol: str
    mechanism: str = ""

    def __str__(self) -> str:
        return f"{self.protocol}-{self.mechanism}" if self.mechanism else self.protocol


TLS: Final = Way("SSL")
ENCRYPTED: Final = [Way("SASL_SSL", mechanism) for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")]
WAYS: Final = [TLS, *ENCRYPTED, Way("SASL_PLAINTEXT", "SCRAM-SHA-256")]


ISSUER, AUDIENCE = "https://issuer.example", "kafka"


class Issuer:
    """Signs tokens, and publishes its key in a file."""

    def __init__(self, folder: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = jwt.get_algorithm_by_name("ES256").to_jwk(self._key.public_key(), as_dict=True)
        path = folder / "keys.json"
        path.write_text(json.dumps({"keys": [{**public, "kid": "1", "use": "sig"}]}))
        self.url = path.as_uri()

    def token(self, audience: str = AUDIENCE) -> str:
        now_s = int(time.time())
        claims = {"iss": ISSUER, "aud": audience, "sub": "machine", "iat": now_s, "exp": now_s + 600}
        return jwt.encode(claims, self._key, "ES256", {"kid": "1"})


class Secured:
    """The broker, its CA, and a certificate of a client."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.ca)
        keystore = folder / "broker.pem"
        authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(keystore))
        own = authority.issue_cert("client@example.org", common_name="machine")
        self.certificate = str(folder / "client.pem")
        own.private_key_and_cert_chain_pem.write_to_path(self.certificate)
        users = folder / "users"
        users.write_text(f"{USER}={PASSWORD}\n")
        users.chmod(0o600)
        self.folder = folder
        self.issuer = Issuer(folder)
        self.broker = RunningBroker(
            settings={
                "ssl.keystore.location": str(keystore),
                "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
                "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": self.issuer.url,
                "sasl.oauthbearer.expected.issuer": ISSUER,
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "sasl.plain.users.file": str(users),
                "listener.name.ssl_2.ssl.client.auth": "required",
                "listener.name.ssl_2.ssl.truststore.location": self.ca,
                "connections.max.reauth.ms": "2000",
                "listener.name.sasl_ssl_2.connections.max.reauth.ms": "0",
                "listener.name.sasl_ssl_2.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            },
            also_listen=[
                "SSL://127.0.0.1:0",
                "SASL_SSL://127.0.0.1:0",
                "SASL_PLAINTEXT://127.0.0.1:0",
                "SSL://127.0.0.1:0",
                "SASL_SSL://127.0.0.1:0",
            ],
        )

    def bootstrap(self, way: Way) -> str:
        return self.broker.addresses[way.protocol]

    def librdkafka(self, way: Way, password: str = PASSWORD) -> dict[str, Any]:
        options: dict[str, Any] = {"bootstrap.servers": self.bootstrap(way), "security.protocol": way.protocol}
        if "SSL" in way.protocol:
            options["ssl.ca.location"] = self.ca
        if way.mechanism:
            options |= {"sasl.mechanism": way.mechanism, "sasl.username": USER, "sasl.password": password}
        return options

    def kafka_python(self, way: Way) -> dict[str, Any]:
        options: dict[str, Any] = {"bootstrap_servers": self.bootstrap(way), "security_protocol": way.protocol}
        if "SSL" in way.protocol:
            options["ssl_cafile"] = self.ca
        if way.mechanism:
            options |= {
                "sasl_mechanism": way.mechanism,
                "sasl_plain_username": USER,
                "sasl_plain_password": PASSWORD,
            }
        return options

    def aiokafka(self, way: Way) -> dict[str, Any]:
        options = self.kafka_python(way)
        if options.pop("ssl_cafile", None) is not None:
            options["ssl_context"] = ssl.create_default_context(cafile=self.ca)
        return options

    def java(self, way: Way) -> str:
        """The path of a file of properties."""
        lines = [f"security.protocol={way.protocol}"]
        if "SSL" in way.protocol:
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.ca}"]
        if way.mechanism:
            kind = "plain.Plain" if way.mechanism == "PLAIN" else "scram.Scram"
            lines += [
                f"sasl.mechanism={way.mechanism}",
                f"sasl.jaas.config=org.apache.kafka.common.security.{kind}LoginModule required "
                f'username="{USER}" password="{PASSWORD}";',
            ]
        path = self.folder / f"{way}-{uuid.uuid4().hex[:6]}.properties"
        path.write_text("\n".join(lines))
        return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.broker:
        with Cluster(made.broker.bootstrap) as cluster:
            mechanisms = [SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512]
            set_password(cluster, USER, Secret(PASSWORD), mechanisms)
        yield made


@pytest.fixture
def topic(secured: Secured) -> str:
    name = f"secure-{uuid.uuid4().hex[:10]}"
    with Cluster(secured.broker.bootstrap) as cluster:
        Admin(cluster).create_topic(name, 1)
    return name


def consumed_by_librdkafka(options: Mapping[str, Any], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**options, "group.id": f"{topic}-group", "enable.auto.commit": False})
    try:
        consumer.assign([Position(topic, 0, 0)])
        read: list[bytes | None] = []
        while len(read) < count:
            messages = consumer.consume(count, DEADLINE_S)
            assert messages, f"only {len(read)} came"
            for message in messages:
                assert message.error() is None, message.error()
                read.append(message.value())
        return read
    finally:
        consumer.close()


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_librdkafka_produces_and_consumes(secured: Secured, topic: str, way: Way) -> None:
    producer = Producer(secured.librdkafka(way))
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0
    assert consumed_by_librdkafka(secured.librdkafka(way), topic, len(VALUES)) == VALUES


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_kafka_python_produces_and_consumes(secured: Secured, topic: str, way: Way) -> None:
    producer = KafkaProducer(**secured.kafka_python(way))
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(DEADLINE_S)
    producer.close()
    consumer = KafkaConsumer(**secured.kafka_python(way), consumer_timeout_ms=DEADLINE_S * 1000)
    partition = KafkaPythonPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.close()


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_aiokafka_produces_and_consumes(secured: Secured, topic: str, way: Way) -> None:
    async def exchange() -> list[bytes]:
        async with AIOKafkaProducer(**secured.aiokafka(way)) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value, partition=0)
        async with AIOKafkaConsumer(**secured.aiokafka(way)) as consumer:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [(await asyncio.wait_for(consumer.getone(), DEADLINE_S)).value for _ in VALUES]

    assert asyncio.run(exchange()) == VALUES


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_kcat_produces_and_consumes(secured: Secured, topic: str, way: Way) -> None:
    # Debian's has a librdkafka before 2.6.1, which repeats its nonce in SCRAM: Apache Kafka 4.1 refuses it.
    try:
        program = find_kcat()
    except KcatUnavailable as reason:
        pytest.skip(str(reason))
    options = [f"{name}={value}" for name, value in secured.librdkafka(way).items() if name != "bootstrap.servers"]
    command = [program, "-b", secured.bootstrap(way), *(part for option in options for part in ("-X", option))]
    sent = b"one\ntwo\n"
    subprocess.run([*command, "-P", "-t", topic], input=sent, check=True, timeout=DEADLINE_S, capture_output=True)
    read = subprocess.run(
        [*command, "-C", "-e", "-q", "-t", topic, "-o", "beginning"],
        check=True,
        timeout=DEADLINE_S,
        capture_output=True,
    )
    assert read.stdout == sent


def java(main_class: str, *arguments: str, input: str = "") -> str:
    try:
        done = run_tool(main_class, *arguments, input=input)
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("way", [TLS, *ENCRYPTED], ids=str)
def test_console_tools_produce_and_consume(secured: Secured, topic: str, way: Way) -> None:
    address, options = ("--bootstrap-server", secured.bootstrap(way)), secured.java(way)
    java(CONSOLE_PRODUCER, *address, "--topic", topic, "--command-config", options, input="one\ntwo\n")
    bounds = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
    assert java(CONSOLE_CONSUMER, *address, "--topic", topic, *bounds, "--command-config", options) == "one\ntwo\n"


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_franz_go_is_served(secured: Secured, way: Way) -> None:
    try:
        program = go_scenarios()
    except PeerUnavailable as reason:
        pytest.skip(f"franz-go is not available: {reason}")
    run_scenarios(secured, way, program)


@pytest.mark.parametrize("way", [TLS, *ENCRYPTED], ids=str)
def test_kafka_go_is_served(secured: Secured, way: Way) -> None:
    try:
        program = kafka_go_scenarios()
    except PeerUnavailable as reason:
        pytest.skip(f"kafka-go is not available: {reason}")
    # It renews no login.
    listener = way.protocol if way is TLS else "SASL_SSL_2"
    run_scenarios(secured, way, program, secured.broker.addresses[listener])


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("client", ["kafkajs", "platformatic"])
def test_javascript_clients_are_served(secured: Secured, client: str, way: Way) -> None:
    try:
        program = javascript_scenarios(client)
    except PeerUnavailable as reason:
        pytest.skip(f"{client} is not available: {reason}")
    run_scenarios(secured, way, program)


def run_scenarios(secured: Secured, way: Way, program: Sequence[str], bootstrap: str | None = None) -> None:
    security = {"TEST_CA": secured.ca if "SSL" in way.protocol else ""}
    if way.mechanism:
        security |= {"TEST_MECHANISM": way.mechanism, "TEST_USERNAME": USER, "TEST_PASSWORD": PASSWORD}
    done = subprocess.run(
        [*program, bootstrap or secured.bootstrap(way), f"{uuid.uuid4().hex[:8]}-{way}", "produce", "classic-group"],
        env={**os.environ, **security},
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )
    assert done.stdout == "ok produce\nok classic-group\n", done.stdout + done.stderr


def test_client_with_a_certificate_is_served_where_one_is_required(secured: Secured, topic: str) -> None:
    options: dict[str, Any] = {
        "bootstrap.servers": secured.broker.addresses["SSL_2"],
        "security.protocol": "SSL",
        "ssl.ca.location": secured.ca,
    }
    own = {"ssl.certificate.location": secured.certificate, "ssl.key.location": secured.certificate}
    producer = Producer({**options, **own})
    producer.produce(topic, b"value")
    assert producer.flush(DEADLINE_S) == 0
    with pytest.raises(KafkaException):
        AdminClient(options).list_topics(timeout=3)


def test_sessions_outlast_the_time_of_a_login(secured: Secured, topic: str) -> None:
    # A login is valid for two seconds: clients renew it on the same connection.
    way = ENCRYPTED[1]
    producer = Producer(secured.librdkafka(way))
    java_options = secured.java(way)
    for number in range(6):
        producer.produce(topic, b"%d\n" % number)
        assert producer.flush(DEADLINE_S) == 0
        producer.poll(1)
    assert not [line for line in secured.broker.log_lines if "login.expired" in line]
    address = ("--bootstrap-server", secured.bootstrap(way))
    bounds = ("--from-beginning", "--max-messages", "6", "--timeout-ms", "60000")
    assert java(CONSOLE_CONSUMER, *address, "--topic", topic, *bounds, "--command-config", java_options).split() == [
        str(number) for number in range(6)
    ]


def failure_of_librdkafka(options: Mapping[str, Any]) -> KafkaError:
    errors: list[KafkaError] = []
    client = Producer({**options, "error_cb": errors.append})
    for _ in range(100):
        client.poll(0.1)
        if errors:
            return errors[0]
    raise AssertionError("no error came")


@pytest.mark.parametrize("way", ENCRYPTED, ids=str)
def test_wrong_password_is_refused_with_the_mechanism(secured: Secured, way: Way) -> None:
    error = failure_of_librdkafka(secured.librdkafka(way, password="wrong"))
    assert error.code() == KafkaError._AUTHENTICATION
    assert f"invalid credentials with SASL mechanism {way.mechanism}" in error.str()


def with_token(secured: Secured, audience: str = AUDIENCE) -> dict[str, Any]:
    options = secured.librdkafka(Way("SASL_SSL")) | {"sasl.mechanism": "OAUTHBEARER"}
    return options | {"oauth_cb": lambda _: (secured.issuer.token(audience), time.time() + 300)}


def test_librdkafka_logs_in_with_a_token(secured: Secured, topic: str) -> None:
    producer = Producer(with_token(secured))
    producer.produce(topic, b"value")
    assert producer.flush(DEADLINE_S) == 0
    assert failure_of_librdkafka(with_token(secured, audience="another")).code() == KafkaError._AUTHENTICATION


def test_mechanism_that_is_not_enabled_is_refused(secured: Secured) -> None:
    error = failure_of_librdkafka(secured.librdkafka(Way("SASL_PLAINTEXT", "PLAIN")))
    assert error.code() == KafkaError._AUTHENTICATION
    assert "SCRAM-SHA-256" in error.str()


def test_client_without_the_authority_does_not_connect(secured: Secured) -> None:
    options = {"bootstrap.servers": secured.bootstrap(TLS), "security.protocol": "SSL"}
    assert "certificate verify failed" in failure_of_librdkafka(options).str()


def test_plain_client_does_not_connect_to_a_listener_with_tls(secured: Secured) -> None:
    lines_count = secured.broker.log_lines_count
    host, _, port = secured.bootstrap(TLS).rpartition(":")

    def is_reported() -> bool:
        with socket.create_connection((host, int(port))) as plain:
            plain.settimeout(DEADLINE_S)
            plain.sendall(bytes.fromhex("0000000d001200000000000100037465737400"))
            assert _is_closed(plain)
        return any("the client does not use TLS" in line for line in secured.broker.log_lines_after(lines_count))

    # Of frequent events one is logged in a second.
    eventually(is_reported)


def _is_closed(plain: socket.socket) -> bool:
    try:
        while plain.recv(1_000):
            pass
    except ConnectionResetError:
        return True
    return True


def test_clients_administer_users(secured: Secured) -> None:
    admin = AdminClient(secured.librdkafka(ENCRYPTED[2]))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
    _wait(admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", info, b"of bob")]))
    options = secured.librdkafka(ENCRYPTED[2], password="of bob") | {"sasl.username": "bob"}
    assert AdminClient(options).list_topics(timeout=DEADLINE_S).topics
    _wait(admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)]))
    assert failure_of_librdkafka(options).code() == KafkaError._AUTHENTICATION


def _wait(futures: Mapping[str, Any]) -> None:
    for future in futures.values():
        future.result(DEADLINE_S)


def test_kafka_configs_administers_users(secured: Secured) -> None:
    address = ("--bootstrap-server", secured.broker.bootstrap)
    entity = ("--entity-type", "users", "--entity-name", "carol")
    changed = java(
        CONFIGS_COMMAND,
        *address,
        "--alter",
        *entity,
        "--add-config",
        "SCRAM-SHA-256=[iterations=8192,password=of carol]",
    )
    assert "Completed updating config for user carol" in changed
    options = secured.librdkafka(ENCRYPTED[1], password="of carol") | {"sasl.username": "carol"}
    assert AdminClient(options).list_topics(timeout=DEADLINE_S).topics


def test_no_password_is_in_the_log(secured: Secured) -> None:
    text = "\n".join(secured.broker.log_lines)
    assert "broker.ready" in text or secured.broker.log_lines_count > len(secured.broker.log_lines)
    for secret in _secrets():
        assert secret not in text


def _secrets() -> Sequence[str]:
    return PASSWORD, "of bob", "of carol", "stored_key", "server_key"
