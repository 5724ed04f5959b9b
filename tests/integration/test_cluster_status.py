"""`ottla cluster status` as a process, against a broker that runs alone, and against none."""

from __future__ import annotations

import json
import subprocess
import sys

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker


def status(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "cluster", "status", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_standalone_broker_is_a_cluster_of_one(ottla_broker: RunningBroker) -> None:
    with Cluster(ottla_broker.bootstrap) as cluster:
        Admin(cluster).create_topic("statuses", 3)
        cluster_id = Admin(cluster).describe_cluster().cluster_id
    text = status("-b", ottla_broker.bootstrap)
    assert text.returncode == 0, text.stderr
    assert text.stdout.startswith(f"cluster {cluster_id}\n\nBROKER ADDRESS ")
    assert f" {ottla_broker.bootstrap} " in text.stdout
    assert "0 under-replicated, 0 without a leader, 0 not led by their preferred replica" in text.stdout
    told = json.loads(status("-b", ottla_broker.bootstrap, "--json").stdout)
    (broker,) = told["brokers"]
    assert (told["is_well"], told["zookeeper"], broker["is_live"], broker["problem"]) == (True, [], True, None)
    assert broker["leads_count"] == broker["replicas_count"] == told["partitions_count"] >= 3


def test_zookeeper_that_does_not_answer_is_reported(ottla_broker: RunningBroker) -> None:
    found = status("-b", ottla_broker.bootstrap, "--zookeeper", "127.0.0.1:1,127.0.0.1:2/chroot")
    assert found.returncode == 1
    assert "zookeeper 127.0.0.1:1: it does not answer" in found.stdout
    assert "zookeeper 127.0.0.1:2: it does not answer" in found.stdout


def test_unreachable_cluster_is_an_error_with_a_hint() -> None:
    found = status("-b", "127.0.0.1:1")
    assert found.returncode == 1
    assert found.stderr.startswith("error: ")
    assert "Traceback" not in found.stderr
