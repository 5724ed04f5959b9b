"""The pages of the guide and the environment that each one runs in: a broker, and the other servers that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from ottla.testing.zookeeper import RunningZooKeeper
from tests.integration.page_snippets import (
    LIVE,
    NO_LIVE,
    REGISTRY,
    ROOT,
    ZOOKEEPER,
    PageProcess,
    Site,
    Snippet,
    read_snippets,
    run_snippets,
)
from tests.zookeeper_or_skip import skips_without_zookeeper

PAGES: Final = sorted(path for path in (ROOT / "docs" / "guide").glob("*.md") if path.name != "README.md")
# Python that imports it, and commands that do, start Spark.
_SPARK: Final = ("ottla.spark", "ottla load", "ottla stream", "ottla audit run")
# How a snippet names a topic: in a verb, as the first argument of a call or the one after an address, as an option of
# Spark; or as one whose streams are created.
_TOPIC: Final = re.compile(
    r"\bottla (?:topic create|produce|consume) ([a-z][\w.-]*)"
    r'|\b(?:create_topic|NewTopic|TopicPartition|send|produce|subscribe)\(\[?\s*"([\w.-]+)"'
    r'|9092",\s*"([\w.-]+)"(?!:)'
    r'|"?(?:subscribe|topic)"?[,:=] ?"([\w.-]+)"'
)
_STREAMS: Final = re.compile(r"\bcreate_message_streams\((\{[^}]*\})")
_KEY: Final = re.compile(r'"([\w.-]+)":')
# Topics that Ottla creates beside those of a page.
_OTTLAS: Final = re.compile(r"_.*|ottla-.*|.*\.dead-letter")


def starts_spark(page: Path) -> bool:
    return any(word in each.code for each in read_snippets(page) for word in _SPARK)


def topics_of(snippets: Iterable[Snippet]) -> frozenset[str]:
    """The topics that these snippets name."""
    found: set[str] = set()
    for each in snippets:
        found.update(name for names in _TOPIC.findall(each.code) for name in names if name)
        found.update(name for streams in _STREAMS.findall(each.code) for name in _KEY.findall(streams))
    return frozenset(found)


def run_page(page: Path, directory: Path, process: PageProcess | None = None) -> None:
    """Runs a page from top to bottom, here or in a process for it alone; raises when the result differs from it."""
    snippets = read_snippets(page)
    assert snippets, "a page of the guide shows how it is done"
    with site_of(snippets) as site:
        # PySpark leaves sockets to the collector.
        is_plain = not starts_spark(page)
        run_snippets(snippets, site, directory, warnings_are_errors=is_plain, output_is_whole=True, process=process)
        unnamed = _topics_at(site) - topics_of(snippets)
        assert not unnamed, "topics of this page that `topics_of` does not find"


def _topics_at(site: Site) -> set[str]:
    found: set[str] = set()
    for bootstrap in {site.bootstrap, site.live} - {NO_LIVE}:
        with Cluster(bootstrap) as cluster:
            found |= {topic.name for topic in Admin(cluster).list_topics()}
    return {name for name in found if not _OTTLAS.fullmatch(name)}


@contextmanager
def site_of(snippets: list[Snippet]) -> Iterator[Site]:
    """A broker; one that shares a ZooKeeper, or has a schema registry, when the page names one; and a second one for
    pages about two clusters."""
    if any(LIVE in each.code for each in snippets):
        with RunningBroker() as live, RunningBroker() as broker:
            yield Site(broker.bootstrap, live=live.bootstrap)
        return
    if any(REGISTRY in each.code for each in snippets):
        with RunningBroker(settings={"schema.registry.listeners": "http://127.0.0.1:0"}) as broker:
            yield Site(broker.bootstrap, registry=broker.schema_registry_url)
        return
    if not any(ZOOKEEPER in each.code for each in snippets):
        # The page of the audit has its setting in a file.
        is_audited = any("ottla audit" in each.code for each in snippets)
        with RunningBroker(
            settings={"audit.enable": "true", "audit.interval.ms": "200"} if is_audited else {}
        ) as broker:
            yield Site(broker.bootstrap)
        return
    with skips_without_zookeeper(), RunningZooKeeper() as zookeeper:
        connect = f"{zookeeper.connect}/ottla"
        settings = {"offsets.topic.replication.factor": "1"}
        with RunningBroker(zookeeper=connect, node_id=1, settings=settings) as broker:
            yield Site(broker.bootstrap, connect)
