"""A broker joins a secured cluster by a token: it replicates, leads and serves clients, by its own user."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from ottla.client.admin.access import delete_user
from ottla.client.admin.admin import Admin
from ottla.client.producing.producer import Producer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.options import ClientOptions
from ottla.model.properties import parse_properties
from ottla.testing.broker import RunningBroker
from ottla.testing.cluster import RunningCluster
from ottla.testing.cluster_security import PROTOCOL, ClusterSecurity
from tests.zookeeper_or_skip import skips_without_zookeeper

HOST: Final = "127.0.0.1"
JOINED: Final = 2
TIMEOUT_S: Final = 60
# Flags of RunningBroker set them: free ports, and the directory.
BY_FLAG: Final = frozenset({"listeners", "node.id", "zookeeper.connect", "listener.security.protocol.map"})


def ottla(*arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        text=True,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


class Site(NamedTuple):
    """A cluster of one broker, and the folder of an operator."""

    cluster: RunningCluster
    security: ClusterSecurity
    folder: Path

    def make_token(self, name: str, *flags: str) -> Path:
        path = self.folder / name
        passphrase = ("--passphrase-file", f"{path}.passphrase")
        ottla("secure", "token", self.security.folder, "--host", HOST, "--output", path, *passphrase, *flags)
        return path

    def join(self, token: Path, folder: Path, *, status: int = 0) -> subprocess.CompletedProcess[str]:
        return ottla("secure", "join", token, folder, "--passphrase-file", f"{token}.passphrase", status=status)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with skips_without_zookeeper():
        folder = tmp_path_factory.mktemp("site")
        security = ClusterSecurity(folder / "security")
        with RunningCluster(1, folder / "cluster", security=security) as cluster:
            yield Site(cluster, security, folder)


def test_broker_with_a_token_replicates_for_the_others_and_they_for_it(site: Site) -> None:
    token, folder = site.make_token("b2.token", "--node-id", str(JOINED)), site.folder / "b2"
    joined = site.join(token, folder)
    assert f"ottla serve --config {folder / 'server.properties'}" in joined.stdout
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder, *folder.iterdir()))

    given = {name: text for name, text, _ in parse_properties((folder / "server.properties").read_text())}
    assert given["node.id"] == str(JOINED)
    assert given["sasl.inter.broker.username"] == f"broker-{HOST}"
    with RunningBroker(
        site.folder / "data-2",
        listen=f"{PROTOCOL}://{HOST}:0",
        also_listen=[f"{PROTOCOL}://{HOST}:0"],
        settings={name: text for name, text in given.items() if name not in BY_FLAG},
        zookeeper=given["zookeeper.connect"],
        node_id=JOINED,
    ) as broker:
        site.cluster.wait_for_brokers({1, JOINED})
        options = ClientOptions(security=site.security.client)
        with Cluster(site.cluster.bootstrap, options) as cluster:
            # Each broker leads one partition, and fetches the other.
            Admin(cluster).create_topic("shared", 2, replication_factor=2, configs={"min.insync.replicas": "2"})
        with Producer(broker.bootstrap, security=site.security.client, acks="all") as producer:
            sent = [producer.send("shared", b"%d" % number, partition=number % 2) for number in range(10)]
            producer.flush()
            assert [each.wait(TIMEOUT_S * 1_000).offset for each in sent] == [number // 2 for number in range(10)]
        for partition in range(2):
            site.cluster.wait_for_isr("shared", partition, {1, JOINED})
        assert {site.cluster.leader_of("shared", partition) for partition in range(2)} == {1, JOINED}


def test_token_lets_one_broker_join(site: Site) -> None:
    token = site.make_token("once.token", "--node-id", "3")
    site.join(token, site.folder / "first")
    refused = site.join(token, site.folder / "second", status=1)
    assert "the token was used before" in refused.stderr
    assert not (site.folder / "second").exists()


def test_token_of_another_cluster_is_refused_and_changes_nothing(site: Site) -> None:
    token = site.make_token("other.token", "--node-id", "4", "--cluster-id", "another")
    refused = site.join(token, site.folder / "other", status=1)
    assert "the token is for cluster another, and the ZooKeeper tree is that of cluster" in refused.stderr
    assert not (site.folder / "other").exists()
    # It gave no user a password: a token for the same host still can.
    site.join(site.make_token("next.token", "--node-id", "4"), site.folder / "next")
    with Cluster(site.cluster.bootstrap, ClientOptions(security=site.security.client)) as cluster:
        delete_user(cluster, f"broker-{HOST}")
