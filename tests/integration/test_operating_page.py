"""The group commands of docs/operating.md, run verbatim: of Kafka groups, and of groups without a master."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import ConsumerConnector, Producer
from ottla.client.admin.admin import Admin
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition
from ottla.testing.broker import RunningBroker
from ottla.testing.zookeeper import RunningZooKeeper
from tests.integration.page_snippets import ROOT, SHELL, Site, read_snippets, run_snippets, the_snippet
from tests.zookeeper_or_skip import skips_without_zookeeper

SNIPPETS = read_snippets(ROOT / "docs" / "operating.md")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with skips_without_zookeeper(), RunningZooKeeper() as zookeeper:
        connect = f"{zookeeper.connect}/page"
        settings = {"offsets.topic.replication.factor": "1"}
        with (
            RunningBroker(zookeeper=connect, node_id=1, settings=settings) as broker,
            Cluster(broker.bootstrap) as cluster,
        ):
            for topic in ("orders", "page-views"):
                Admin(cluster).create_topic(topic, 3)
            with Producer(broker.bootstrap) as producer:
                for topic in ("orders", "page-views"):
                    producer.send(topic, [b"1", b"2", b"3"], partition=0)
            yield Site(broker.bootstrap, connect)


def test_group_of_kafka_is_shown_moved_kept_and_deleted(site: Site, tmp_path: Path) -> None:
    with Cluster(site.bootstrap) as cluster:
        offsets = {TopicPartition("orders", number): CommittedOffset(0) for number in range(3)}
        GroupAdmin(cluster).commit("billing", offsets)
    (printed,) = run_snippets([the_snippet(SNIPPETS, SHELL, "ottla group describe billing")], site, tmp_path)
    assert "deleted offset of orders-0" in printed
    assert "deleted group billing" in printed
    assert (tmp_path / "billing.csv").read_text().startswith("orders,0,")


def test_group_without_a_master_is_shown_and_moved_while_it_runs(site: Site, tmp_path: Path) -> None:
    with ConsumerConnector(zookeeper=site.zookeeper, group="jobs", auto_offset_reset="earliest") as connector:
        (stream,) = connector.create_message_streams({"page-views": 1})["page-views"]
        messages = [next(stream) for _ in range(3)]
        (printed,) = run_snippets([the_snippet(SNIPPETS, SHELL, "ottla group describe jobs")], site, tmp_path)
        assert "page-views-0" in printed
        assert [message.offset for message in messages] == [0, 1, 2]
