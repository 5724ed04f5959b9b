"""A plain cluster becomes secure, a broker after the other, as docs/operating.md has it: no client gets an error."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from ottla.client.admin.access import set_password
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import AuthenticationFailed, ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.setting_names import client_security
from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity
from ottla.security.mechanism import SaslMechanism
from ottla.security.secret import Secret
from ottla.testing.broker import RunningBroker
from ottla.testing.cluster_security import ADMIN, BROKER, BROKERS_LISTENER, ClusterSecurity
from ottla.testing.zookeeper import RunningZooKeeper
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

TOPIC: Final = "orders"
GROUP: Final = "billing"
PARTITIONS_COUNT: Final = 3
NODE_IDS: Final = (1, 2, 3)
ALICE: Final = "alice"
PASSWORD: Final = "alice has a password"
SERVED: Final = {"default.replication.factor": "3", "min.insync.replicas": "2", "replica.fetch.backoff.ms": "100"}
# Which settings of the secured cluster each round adds; docs/operating.md has the reasons.
OF_ZOOKEEPER: Final = "zookeeper."
OF_LISTENERS: Final = ("ssl.", "sasl.")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]


class Site:
    """Three brokers on fixed ports, each with the settings of the round that it is in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = ClusterSecurity(folder / "security")
        self.files.make_missing()
        self.plain_zookeeper_port, *ports = free_ports(1 + 3 * len(NODE_IDS))
        self.plain_ports, self.client_ports, self.broker_ports = ports[:3], ports[3:6], ports[6:]
        self.zookeeper = RunningZooKeeper(
            folder / "zookeeper", tls=self.files.zookeeper_tls, plain_port=self.plain_zookeeper_port
        )
        self.brokers: dict[int, RunningBroker] = {}

    @property
    def plain_zookeeper(self) -> str:
        return f"127.0.0.1:{self.plain_zookeeper_port}/ottla"

    @property
    def tls_zookeeper(self) -> str:
        return f"{self.zookeeper.connect}/ottla"

    @property
    def plain(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.plain_ports)

    @property
    def secure(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.client_ports)

    def start(self, node_id: int, zookeeper: str, settings: Mapping[str, str], listeners: Sequence[str]) -> None:
        ports = {"PLAINTEXT": self.plain_ports, "SASL_SSL": self.client_ports, BROKERS_LISTENER: self.broker_ports}
        addresses = [
            f"{'PLAINTEXT' if name == 'PLAINTEXT' else 'SASL_SSL'}://127.0.0.1:{ports[name][node_id - 1]}"
            for name in listeners
        ]
        broker = RunningBroker(
            self.folder / f"broker-{node_id}",
            listen=addresses[0],
            also_listen=addresses[1:],
            settings={**SERVED, **settings},
            zookeeper=zookeeper,
            node_id=node_id,
        )
        self.brokers[node_id] = broker
        broker.start()

    def roll(
        self,
        zookeeper: str,
        settings: Mapping[str, str],
        listeners: Sequence[str],
        security: ClientSecurity,
        traffic: Traffic,
    ) -> None:
        """A broker after the other: the next one when all replicas are in sync.

        A replica that may not fetch any more leaves the in-sync ones only when a record waits for it.
        """
        for node_id in NODE_IDS:
            assert self.brokers[node_id].stop() == 0
            self.start(node_id, zookeeper, settings, listeners)
            traffic.wait_until_delivered()
            self.wait_until_in_sync(security)

    def wait_until_in_sync(self, security: ClientSecurity) -> None:
        bootstrap = self.plain if security is PLAINTEXT else self.secure

        def lagging() -> object:
            try:
                with Cluster(bootstrap, ClientOptions(security=security)) as cluster:
                    topics = Admin(cluster).list_topics()
                    brokers = set(Admin(cluster).describe_cluster().brokers)
            except ClientError as error:
                return error
            return sorted(set(NODE_IDS) - brokers) + [
                f"{topic.name}-{each.partition}: {each.in_sync_replicas}"
                for topic in topics
                for each in topic.partitions.values()
                if len(each.in_sync_replicas) < len(NODE_IDS)
            ]

        eventually(lagging, lambda seen: not seen)

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self.zookeeper.close)
            for broker in self.brokers.values():
                stack.callback(broker.close)


class Traffic:
    """A producer and a member of a group that work all the time; every error that either reports is kept."""

    def __init__(self, properties: Mapping[str, str], first: int) -> None:
        self.errors: list[object] = []
        self.read: set[int] = set()
        # The last number by partition, of those that were acknowledged.
        self._delivered = dict.fromkeys(range(PARTITIONS_COUNT), -1)
        self._first = self.next = first
        self._producer = Producer({**properties, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        self._consumer = Consumer({**properties, "group.id": GROUP, "auto.offset.reset": "earliest"})
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._consume)]

    def _produce(self) -> None:
        while not self._ends.wait(0.005):
            self._producer.produce(
                TOPIC, b"%d" % self.next, partition=self.next % PARTITIONS_COUNT, on_delivery=self._on_delivery
            )
            self.next += 1
            self._producer.poll(0)
        if self._producer.flush(120):
            self.errors.append("records are left")

    def _consume(self) -> None:
        self._consumer.subscribe([TOPIC])
        # To the end of what was produced here.
        while (
            not self._ends.is_set()
            or self._threads[0].is_alive()
            or not self.read >= set(range(self._first, self.next))
        ):
            for message in self._consumer.consume(500, 0.2):
                if message.error() is not None:
                    self.errors.append(message.error())
                else:
                    self.read.add(int(message.value() or b""))
        self._consumer.close()

    def _on_delivery(self, error: object, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            number, partition = int(message.value() or b""), message.partition()
            assert partition is not None
            self._delivered[partition] = max(self._delivered[partition], number)

    def wait_until_delivered(self) -> None:
        """In every partition a record that is produced from now on: all its in-sync replicas have it."""
        from_number = self.next
        eventually(lambda: min(self._delivered.values()), lambda number: number >= from_number)

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._ends.set()
            for thread in self._threads:
                thread.join(180)
        assert not any(thread.is_alive() for thread in self._threads)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with skips_without_zookeeper():
        made = Site(tmp_path)
        try:
            made.zookeeper.start()
            yield made
        finally:
            made.close()


def ottla(*arguments: str, **environment: str) -> str:
    command = [sys.executable, "-m", "ottla", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def alice_of(site: Site) -> dict[str, str]:
    return {
        "bootstrap.servers": site.secure,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": ALICE,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(site.files.ca),
    }


def test_plain_cluster_becomes_secure_and_no_client_gets_an_error(site: Site) -> None:
    every = site.files.settings
    of_zookeeper = {name: text for name, text in every.items() if name.startswith(OF_ZOOKEEPER)}
    of_listeners = {name: text for name, text in every.items() if name.startswith(OF_LISTENERS)}
    three = ["PLAINTEXT", "SASL_SSL", BROKERS_LISTENER]
    for node_id in NODE_IDS:
        site.start(node_id, site.plain_zookeeper, {}, ["PLAINTEXT"])
    with Cluster(site.plain) as cluster:
        Admin(cluster).create_topic(TOPIC, PARTITIONS_COUNT, replication_factor=3)
        passwords = {
            BROKER: site.files.password.read_text().strip(),
            ADMIN: site.files.admin_password.read_text().strip(),
            ALICE: PASSWORD,
        }
        for name, password in passwords.items():
            set_password(cluster, name, Secret(password), [SaslMechanism.SCRAM_SHA_512])

    plain = Traffic({"bootstrap.servers": site.plain}, 0)
    with plain.running():
        # 1. Listeners, and ZooKeeper by TLS and with a user; nodes stay open for the brokers of the former settings.
        first = {**of_zookeeper, **of_listeners, "zookeeper.set.acl": "false"}
        site.roll(site.tls_zookeeper, first, three, PLAINTEXT, plain)
        # 2. The brokers' own listener; then the tree is closed.
        moved = {
            **of_zookeeper,
            **of_listeners,
            "inter.broker.listener.name": BROKERS_LISTENER,
            "inter.broker.former.listener.name": "PLAINTEXT",
        }
        site.roll(site.tls_zookeeper, moved, three, PLAINTEXT, plain)
        digest = site.files.digest.read_text().strip()
        tls = [f"--set={name}={text}" for name, text in of_zookeeper.items() if ".ssl." in name]
        consumers = site.files.consumers_digest
        ottla(
            *("cluster", "protect", "--zookeeper", site.tls_zookeeper, *tls),
            f"--set=zookeeper.consumers.digest.file={consumers}",
            OTTLA_ZOOKEEPER_DIGEST=digest,
        )
        site.wait_until_in_sync(PLAINTEXT)
    assert plain.errors == []

    # 3. Clients: the same group, the same topic.
    secure = Traffic(alice_of(site), plain.next)
    admin = site.files.client
    with secure.running():
        authorized = {
            **{name: text for name, text in moved.items() if "former" not in name},
            "authorizer.class.name": every["authorizer.class.name"],
            "super.users": every["super.users"],
        }
        # 4. The authorizer, which denies nothing before there are ACLs.
        site.roll(site.tls_zookeeper, {**authorized, "allow.everyone.if.no.acl.found": "true"}, three, admin, secure)
        given = ["--allow-principal", f"User:{ALICE}"]
        properties = ["-b", site.secure, "--command-config", str(site.files.client_properties)]
        everyone = ["--topic", "*", "--group", "*", "--cluster", "--operation", "All"]
        ottla("acl", "add", *everyone, "--allow-principal", "User:*", *properties)
        ottla("acl", "add", "--topic", TOPIC, "--producer", *given, *properties)
        ottla("acl", "add", "--topic", TOPIC, "--group", GROUP, "--consumer", *given, *properties)
        ottla("acl", "remove", *everyone, "--allow-principal", "User:*", *properties)
        # 5. Only what an ACL allows, and no plain listener.
        site.roll(site.tls_zookeeper, authorized, ["SASL_SSL", BROKERS_LISTENER], admin, secure)
    assert secure.errors == []
    assert plain.read | secure.read == set(range(secure.next))

    for port in site.plain_ports:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port))
    settings = {**alice_of(site), "sasl.password": "guessed"}
    del settings["bootstrap.servers"]
    wrong = client_security(settings)
    with pytest.raises(AuthenticationFailed), Cluster(site.secure, ClientOptions(security=wrong)) as cluster:
        cluster.refresh(None)
    stranger = Consumer({**alice_of(site), "group.id": "another"})
    stranger.subscribe([TOPIC])
    [message] = stranger.consume(1, 60)
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    stranger.close()
