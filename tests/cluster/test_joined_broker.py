"""`secure init` makes a cluster's first broker, and another one joins it by a token: it replicates, leads and serves
clients, by its own user.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.producing.producer import Producer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.setting_names import read_client_properties, security_of_properties
from ottla.model.properties import parse_properties
from ottla.security.member_settings import SERVER_PROPERTIES
from ottla.testing.broker import RunningBroker
from ottla.testing.zookeeper import RunningZooKeeper, ServerTls
from tests.command_line import Done, ottla
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

HOST: Final = "127.0.0.1"
JOINED: Final = 2
TIMEOUT_S: Final = 60
# Flags of RunningBroker set them: free ports, and the directory.
BY_FLAG: Final = frozenset(
    {"listeners", "advertised.listeners", "node.id", "zookeeper.connect", "listener.security.protocol.map"}
)
# Replaced when the server has a port.
ZOOKEEPER: Final = "127.0.0.1:1"
CLIENT: Final = "client.properties"


class Site(NamedTuple):
    """The folder that `secure init` made for a cluster of one broker, and a folder for those that join."""

    authority: Path
    folder: Path
    bootstrap: str

    @property
    def client(self) -> ClientOptions:
        return ClientOptions(security=security_of_properties(read_client_properties(self.authority / CLIENT)))

    def make_token(self, name: str, *flags: str) -> Path:
        path = self.folder / name
        passphrase = ("--passphrase-file", f"{path}.passphrase")
        ottla("secure", "token", self.authority, "--host", HOST, "--output", path, *passphrase, *flags)
        return path

    def join(self, token: Path, folder: Path, *, status: int = 0) -> Done:
        return ottla("secure", "join", token, folder, "--passphrase-file", f"{token}.passphrase", status=status)


def broker_of(folder: Path) -> RunningBroker:
    """With the settings of a folder, at free ports."""
    given = {name: text for name, text, _ in parse_properties((folder / SERVER_PROPERTIES).read_text())}
    return RunningBroker(
        folder.with_suffix(".data"),
        listen=f"SASL_SSL://{HOST}:0",
        also_listen=[f"SASL_SSL://{HOST}:0"],
        settings={
            **{name: text for name, text in given.items() if name not in BY_FLAG},
            "inter.broker.listener.name": "SASL_SSL_2",
        },
        zookeeper=given["zookeeper.connect"],
        node_id=int(given["node.id"]),
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    authority = folder / "b1"
    ottla("secure", "init", authority, "--host", HOST, "--zookeeper", f"{ZOOKEEPER}/ottla")
    tls = ServerTls(authority / "zookeeper.pem", authority / "ca.pem", demands_certificate=True)
    with skips_without_zookeeper(), RunningZooKeeper(folder / "zookeeper", tls=tls) as zookeeper:
        config = authority / SERVER_PROPERTIES
        config.write_text(config.read_text().replace(ZOOKEEPER, zookeeper.connect))
        with broker_of(authority) as broker:
            client = ("-b", broker.bootstrap, "--command-config", authority / CLIENT)
            ottla("user", "add", f"broker-{HOST}", "--password-file", authority / "broker.password", *client)
            yield Site(authority, folder, broker.bootstrap)


def test_broker_with_a_token_replicates_for_the_others_and_they_for_it(site: Site) -> None:
    # The two brokers are on one machine, and each has its user.
    token, folder = site.make_token("b2.token", "--node-id", str(JOINED), "--host", "localhost"), site.folder / "b2"
    joined = site.join(token, folder)
    assert f"ottla serve --config {folder / SERVER_PROPERTIES}" in joined.out
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder, *folder.iterdir()))
    with broker_of(folder) as broker, Cluster(broker.bootstrap, site.client) as cluster:
        for bootstrap in (site.bootstrap, broker.bootstrap):
            with Cluster(bootstrap, site.client) as of_one:
                eventually(lambda at=of_one: set(Admin(at).describe_cluster().brokers) == {1, JOINED})  # type: ignore[misc]
        admin = Admin(cluster)
        # Each broker leads one partition, and fetches the other.
        admin.create_topic("shared", 2, replication_factor=2, configs={"min.insync.replicas": "2"})
        with Producer(broker.bootstrap, security=site.client.security, acks="all") as producer:
            sent = [producer.send("shared", b"%d" % number, partition=number % 2) for number in range(10)]
            assert [each.wait(TIMEOUT_S * 1_000).offset for each in sent] == [number // 2 for number in range(10)]
        [topic] = admin.describe_topics(["shared"])
        assert {each.leader_id for each in topic.partitions.values()} == {1, JOINED}
        assert all(set(each.in_sync_replicas) == {1, JOINED} for each in topic.partitions.values())


def test_token_lets_one_broker_join(site: Site) -> None:
    token = site.make_token("once.token", "--node-id", "3")
    site.join(token, site.folder / "first")
    refused = site.join(token, site.folder / "second", status=1)
    assert "the token was used before" in refused.err
    assert not (site.folder / "second").exists()


def test_token_of_another_cluster_is_refused_and_changes_nothing(site: Site) -> None:
    token = site.make_token("other.token", "--node-id", "4", "--cluster-id", "another")
    refused = site.join(token, site.folder / "other", status=1)
    assert "the token is for cluster another, and the ZooKeeper tree is that of cluster" in refused.err
    assert not (site.folder / "other").exists()
    # It gave no user a password: a token for the same host still can.
    site.join(site.make_token("next.token", "--node-id", "4"), site.folder / "next")
