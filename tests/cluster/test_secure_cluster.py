"""Three brokers that log in to each other by SCRAM over TLS, through the kill of a leader; and a peer that is none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trustme
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.broker.replicas.peer_connection import PeerAddress, PeerConnection, PeerDistrusted, PeerLogin, PeerSecurity
from ottla.broker.security.tls_server import TlsServer
from ottla.client.admin.access import set_password
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.model.settings import BrokerSettings
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from ottla.protocol.schemas.metadata import MetadataRequest
from ottla.runtime.clock import SystemClock
from ottla.security.mechanism import SaslMechanism
from ottla.security.secret import Secret
from ottla.testing.cluster import RunningCluster

TOPIC: Final = "secure"
RECORDS: Final = 500
TIMEOUT_MS: Final = 10_000
PASSWORD: Final = "secret of brokers"


class Secured:
    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.ca)
        self.keystore = str(folder / "broker.pem")
        own = self.authority.issue_cert("localhost", "127.0.0.1")
        own.private_key_and_cert_chain_pem.write_to_path(self.keystore)
        password = folder / "password"
        password.write_text(f"{PASSWORD}\n")
        password.chmod(0o600)
        self.tls = {"ssl.keystore.location": self.keystore, "ssl.truststore.location": self.ca}
        self.cluster = RunningCluster(
            3,
            settings={
                **self.tls,
                "inter.broker.listener.name": "SASL_SSL",
                "sasl.inter.broker.username": "broker",
                "sasl.inter.broker.password.file": str(password),
                # Logins are renewed while records are copied.
                "connections.max.reauth.ms": "1000",
                "replica.fetch.backoff.ms": "100",
            },
            also_listen=["SASL_SSL://127.0.0.1:0"],
        )

    def peer_address(self, node_id: int = 1) -> PeerAddress:
        host, _, port = self.cluster.broker(node_id).addresses["SASL_SSL"].rpartition(":")
        return PeerAddress(host, int(port))

    def security(self, password: str = PASSWORD, ca: str | None = None) -> PeerSecurity:
        texts = self.tls if ca is None else {**self.tls, "ssl.truststore.location": ca}
        server = TlsServer(BrokerSettings.of(texts), "SASL_SSL", SystemClock().now_ms)
        login = PeerLogin(SaslMechanism.SCRAM_SHA_512, "broker", Secret(password))
        return PeerSecurity(lambda: server.peer_context, login)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.cluster:
        with Cluster(made.cluster.bootstrap) as cluster:
            set_password(cluster, "broker", Secret(PASSWORD), [SaslMechanism.SCRAM_SHA_512])
            Admin(cluster).create_topic(TOPIC, 3, replication_factor=3, configs={"min.insync.replicas": "2"})
        yield made


def test_acknowledged_records_survive_the_kill_of_a_leader(secured: Secured) -> None:
    cluster = secured.cluster
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})

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

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(3)])
    read: list[int] = []
    while len(read) < 3 * RECORDS:
        messages = consumer.consume(1_000, 30)
        assert messages, f"{len(read)} came"
        read += [int(message.value() or b"") for message in messages]
    consumer.close()
    assert sorted(read) == list(range(3 * RECORDS))
    for node_id in cluster.brokers:
        assert PASSWORD not in "\n".join(cluster.broker(node_id).log_lines)


def test_brokers_do_not_log_in_with_another_password_or_trust_another_authority(
    secured: Secured, tmp_path: Path
) -> None:
    async def open_peer(security: PeerSecurity) -> None:
        peer = await PeerConnection.open(
            secured.peer_address(), "test", timeout_ms=TIMEOUT_MS, response_bytes_max=1 << 20, security=security
        )
        await peer.call(ApiKey.METADATA, 1, encode_request(ApiKey.METADATA, 1, MetadataRequest()), TIMEOUT_MS)
        peer.close()

    asyncio.run(open_peer(secured.security()))
    with pytest.raises(PeerDistrusted, match="did not log in the user broker"):
        asyncio.run(open_peer(secured.security(password="wrong")))
    other = str(tmp_path / "other.pem")
    trustme.CA().cert_pem.write_to_path(other)
    with pytest.raises(PeerDistrusted, match="no TLS with"):
        asyncio.run(open_peer(secured.security(ca=other)))


def test_replicas_fetch_on_no_other_listener(secured: Secured) -> None:
    """With the id and epoch of a live broker, which any client can read or guess."""

    async def fetch(address: PeerAddress, security: PeerSecurity) -> int:
        peer = await PeerConnection.open(
            address, "test", timeout_ms=TIMEOUT_MS, response_bytes_max=1 << 20, security=security
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

    with Cluster(secured.cluster.bootstrap) as cluster:
        topic_id = Admin(cluster).create_topic("other", 1, replication_factor=3).topic_id
    plain = secured.cluster.broker(1)
    outside = asyncio.run(fetch(PeerAddress(plain.host, plain.port), PeerSecurity()))
    assert outside == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    # On their own listener it is the epoch that is wrong.
    inside = asyncio.run(fetch(secured.peer_address(), secured.security()))
    assert inside == ErrorCode.STALE_BROKER_EPOCH
