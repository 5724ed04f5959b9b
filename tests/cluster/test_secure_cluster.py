"""Three brokers with an authorizer, TLS and SCRAM everywhere, also to ZooKeeper, through the kill of a leader; peers
that are none, and clients whose rights change.
"""

from __future__ import annotations

import asyncio
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import trustme
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.broker.replicas.peer_connection import PeerAddress, PeerConnection, PeerDistrusted, PeerLogin, PeerSecurity
from ottla.broker.security.tls_server import TlsServer
from ottla.client.admin.access import create_acls, delete_acls, delete_user, set_password
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import AuthenticationFailed, ConnectionLost
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.setting_names import client_security
from ottla.coordination.zookeeper.access import ZooKeeperRefused
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.coordination.zookeeper.inspection import inspect_tree
from ottla.coordination.zookeeper.security import client_security as zookeeper_client_security
from ottla.coordination.zookeeper.security import zookeeper_security
from ottla.model.error_code import ErrorCode
from ottla.model.settings import BrokerSettings
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from ottla.protocol.schemas.metadata import MetadataRequest
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import run
from ottla.security.acl import (
    AccessEntry,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ottla.security.mechanism import SaslMechanism
from ottla.security.secret import Secret
from ottla.testing.cluster import RunningCluster
from ottla.testing.cluster_security import BROKER, BROKERS_LISTENER, ClusterSecurity
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

TOPIC: Final = "secure"
GROUP: Final = "readers"
RECORDS: Final = 500
TIMEOUT_MS: Final = 10_000
NODE_IDS: Final = (1, 2, 3)


class Secured:
    def __init__(self, folder: Path) -> None:
        self.files = ClusterSecurity(folder / "security")
        self.cluster = RunningCluster(
            3,
            folder,
            settings={
                # Logins are renewed while records are copied, and a deleted user stays no longer.
                "connections.max.reauth.ms": "1000",
                "replica.fetch.backoff.ms": "100",
            },
            security=self.files,
            has_zookeeper=True,
        )
        self.passwords: dict[str, str] = {}

    def admin(self) -> Cluster:
        return Cluster(self.cluster.bootstrap, ClientOptions(security=self.files.client))

    def add_user(self, name: str) -> None:
        self.passwords[name] = secrets.token_urlsafe(12)
        with self.admin() as cluster:
            set_password(cluster, name, Secret(self.passwords[name]), [SaslMechanism.SCRAM_SHA_512])
        for node_id in NODE_IDS:
            eventually(lambda at=node_id: self.can_log_in(name, at))  # type: ignore[misc]

    def allow(self, name: str, resource_type: ResourceType, resource: str, *operations: Operation) -> None:
        pattern = ResourcePattern(resource_type, PatternType.LITERAL, resource)
        entries = [AccessEntry(f"User:{name}", "*", operation, Permission.ALLOW) for operation in operations]
        with self.admin() as cluster:
            refusals = create_acls(cluster, [Acl(pattern, entry) for entry in entries])
        assert set(refusals.values()) == {None}

    def client(self, name: str, node_id: int) -> Cluster:
        """Of one broker."""
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": self.passwords[name],
            "ssl.ca.location": str(self.files.ca),
        }
        options = ClientOptions(call_timeout_ms=TIMEOUT_MS, security=client_security(settings))
        return Cluster(self.cluster.broker(node_id).bootstrap, options)

    def can_log_in(self, name: str, node_id: int) -> bool:
        try:
            self.topic_error(name, node_id)
        except AuthenticationFailed:
            return False
        return True

    def topic_error(self, name: str, node_id: int) -> ErrorCode:
        """What a broker answers to a description of the topic."""
        with self.client(name, node_id) as cluster:
            [topic] = Admin(cluster).describe_topics([TOPIC])
        return ErrorCode(topic.error_code)

    def librdkafka(self, name: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.cluster.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": self.passwords[name],
            "ssl.ca.location": str(self.files.ca),
        }

    def peer_address(self, listener: str = BROKERS_LISTENER, node_id: int = 1) -> PeerAddress:
        host, _, port = self.cluster.broker(node_id).addresses[listener].rpartition(":")
        return PeerAddress(host, int(port))

    def peer_security(self, password: str | None = None, ca: str | None = None) -> PeerSecurity:
        texts = {"ssl.keystore.location": str(self.files.keystore), "ssl.truststore.location": ca or str(self.files.ca)}
        server = TlsServer(BrokerSettings.of(texts), "SASL_SSL", SystemClock().now_ms)
        login = PeerLogin(SaslMechanism.SCRAM_SHA_512, BROKER, Secret(password or self.files.password.read_text()[:-1]))
        return PeerSecurity(lambda: server.peer_context, login)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with skips_without_zookeeper():
        made = Secured(tmp_path_factory.mktemp("secured"))
        with made.cluster:
            with made.admin() as cluster:
                Admin(cluster).create_topic(TOPIC, 3, replication_factor=3, configs={"min.insync.replicas": "2"})
            for name in ("alice", "bob"):
                made.add_user(name)
            made.allow("alice", ResourceType.TOPIC, TOPIC, Operation.WRITE)
            made.allow("bob", ResourceType.TOPIC, TOPIC, Operation.READ)
            made.allow("bob", ResourceType.GROUP, GROUP, Operation.READ)
            yield made


def test_acknowledged_records_survive_the_kill_of_a_leader(secured: Secured) -> None:
    cluster = secured.cluster
    failed: list[object] = []
    producer = Producer({**secured.librdkafka("alice"), "acks": "all", "enable.idempotence": True})

    def produce(first: int) -> None:
        for number in range(first, first + RECORDS):
            producer.produce(
                TOPIC, b"%d" % number, partition=number % 3, on_delivery=lambda error, _: failed.append(error)
            )
            producer.poll(0)

    produce(0)
    assert producer.flush(60) == 0
    killed = cluster.broker(1)
    killed.kill()
    produce(RECORDS)
    assert producer.flush(60) == 0
    cluster.start()
    produce(2 * RECORDS)
    assert producer.flush(60) == 0
    assert [error for error in failed if error is not None] == []

    consumer = Consumer({**secured.librdkafka("bob"), "group.id": GROUP})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(3)])
    read: list[int] = []
    while len(read) < 3 * RECORDS:
        messages = consumer.consume(1_000, 30)
        assert messages, f"{len(read)} came"
        read += [int(message.value() or b"") for message in messages]
    consumer.close()
    assert sorted(read) == list(range(3 * RECORDS))


def test_change_of_an_acl_reaches_all_brokers(secured: Secured) -> None:
    secured.add_user("carol")

    def answers() -> list[ErrorCode]:
        return [secured.topic_error("carol", node_id) for node_id in NODE_IDS]

    refused = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(NODE_IDS)
    assert answers() == refused
    secured.allow("carol", ResourceType.TOPIC, TOPIC, Operation.DESCRIBE)
    eventually(answers, lambda seen: seen == [ErrorCode.NONE] * len(NODE_IDS))
    with secured.admin() as cluster:
        [deleted] = delete_acls(cluster, [AclFilter(principal="User:carol")])
    assert deleted.entry.operation is Operation.DESCRIBE
    eventually(answers, lambda seen: seen == refused)


def test_deleted_user_is_refused_on_every_broker(secured: Secured) -> None:
    secured.add_user("dave")
    secured.allow("dave", ResourceType.TOPIC, TOPIC, Operation.DESCRIBE)
    with secured.client("dave", 2) as open_before:
        Admin(open_before).describe_topics([TOPIC])
        with secured.admin() as cluster:
            delete_user(cluster, "dave")
        for node_id in NODE_IDS:
            eventually(lambda at=node_id: not secured.can_log_in("dave", at))  # type: ignore[misc]

        def is_closed() -> bool:
            try:
                Admin(open_before).describe_topics([TOPIC])
            except (AuthenticationFailed, ConnectionLost):
                return True
            return False

        # connections.max.reauth.ms ends the login that it still has.
        eventually(is_closed)


def test_brokers_do_not_log_in_with_another_password_or_trust_another_authority(
    secured: Secured, tmp_path: Path
) -> None:
    async def open_peer(security: PeerSecurity) -> None:
        peer = await PeerConnection.open(
            secured.peer_address(), "test", timeout_ms=TIMEOUT_MS, response_bytes_max=1 << 20, security=security
        )
        await peer.call(ApiKey.METADATA, 1, encode_request(ApiKey.METADATA, 1, MetadataRequest()), TIMEOUT_MS)
        peer.close()

    asyncio.run(open_peer(secured.peer_security()))
    with pytest.raises(PeerDistrusted, match="did not log in the user broker"):
        asyncio.run(open_peer(secured.peer_security(password="wrong")))
    other = str(tmp_path / "other.pem")
    trustme.CA().cert_pem.write_to_path(other)
    with pytest.raises(PeerDistrusted, match="no TLS with"):
        asyncio.run(open_peer(secured.peer_security(ca=other)))


def test_replicas_fetch_on_no_other_listener(secured: Secured) -> None:
    """With the id and epoch of a live broker, which any client can read or guess; even with the brokers' own login."""

    async def fetch(address: PeerAddress) -> int:
        peer = await PeerConnection.open(
            address, "test", timeout_ms=TIMEOUT_MS, response_bytes_max=1 << 20, security=secured.peer_security()
        )
        partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1_000)
        request = FetchRequest(
            replica_state=ReplicaState(2, 1),
            max_bytes=1_000,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
        )
        body = encode_request(ApiKey.FETCH, 15, request)
        response = decode_response(ApiKey.FETCH, 15, await peer.call(ApiKey.FETCH, 15, body, TIMEOUT_MS))
        assert isinstance(response, FetchResponse)
        peer.close()
        [found] = response.responses
        return found.partitions[0].error_code

    with secured.admin() as cluster:
        topic_id = Admin(cluster).create_topic("other", 1, replication_factor=3).topic_id
    assert asyncio.run(fetch(secured.peer_address("SASL_SSL"))) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    # On their own listener it is the epoch that is wrong.
    assert asyncio.run(fetch(secured.peer_address())) == ErrorCode.STALE_BROKER_EPOCH


def test_tree_is_closed_to_every_client_but_the_brokers(secured: Secured) -> None:
    connect = secured.cluster.zookeeper_connect
    tls = secured.cluster.zookeeper.client_settings

    async def open_session(settings: Mapping[str, str]) -> None:
        await (await ZooKeeperBackend(connect, security=zookeeper_client_security(settings)).connect()).close()

    with pytest.raises(ZooKeeperRefused, match="/ is closed to anyone"):
        run(open_session(tls))
    with pytest.raises(ZooKeeperRefused, match="/ is closed to the user 'brokers'"):
        run(open_session({**tls, "zookeeper.digest": "brokers:guessed"}))
    seen = inspect_tree(connect, zookeeper_security(BrokerSettings.of(secured.files.settings)), TIMEOUT_MS / 1_000)
    assert set(seen.brokers) == set(NODE_IDS)
    assert seen.open_paths == []
    consumers = {**tls, "zookeeper.digest.file": str(secured.files.consumers_digest)}
    assert set(inspect_tree(connect, zookeeper_client_security(consumers), TIMEOUT_MS / 1_000).brokers) == set(NODE_IDS)


def test_no_password_is_in_a_log_or_on_a_command_line_or_readable_by_others(secured: Secured) -> None:
    files = secured.files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.folder.iterdir()} == {0o600}
    shown: list[Callable[[int], str]] = [
        lambda node_id: "\n".join(secured.cluster.broker(node_id).log_lines),
        lambda node_id: " ".join(secured.cluster.broker(node_id).command_line),
    ]
    for path in (files.password, files.admin_password, files.digest, files.consumers_digest):
        password = path.read_text().strip().rpartition(":")[2]
        assert len(password) > 16
        for node_id in NODE_IDS:
            assert not any(password in text(node_id) for text in shown)
