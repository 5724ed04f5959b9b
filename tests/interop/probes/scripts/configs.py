"""Settings of topics and of the broker, and the contents of the log directories."""

from __future__ import annotations

from ottla.protocol.schemas.alter_configs import AlterableConfig as ReplacedConfig
from ottla.protocol.schemas.alter_configs import AlterConfigsRequest
from ottla.protocol.schemas.alter_configs import AlterConfigsResource as ReplacedResource
from ottla.protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.schemas.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.interop.probes.talk import Talk

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
_NAMES = """
cleanup.policy compression.type delete.retention.ms file.delete.delay.ms flush.messages flush.ms
index.interval.bytes max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms
message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms
min.insync.replicas retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms
segment.ms
"""
NAMES = _NAMES.split()


def _describe(topic: str, names: list[str] | None) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, names)], include_synonyms=True)


def _describe_each(talk: Talk, label: str, version: int, topic: str) -> None:
    """One setting at a time, since the order of several differs between brokers."""
    for name in NAMES:
        talk.ask(f"{label}: {name}", version, _describe(topic, [name]))


def probe_describe_configs(talk: Talk) -> None:
    talk.create_topic("probe-configs", 1, retention_ms="1234567", cleanup_policy="compact")
    _describe_each(talk, "DescribeConfigs v4", 4, "probe-configs")
    talk.ask("DescribeConfigs v1", 1, _describe("probe-configs", ["retention.ms"]))
    talk.ask("DescribeConfigs of an unknown name", 4, _describe("probe-configs", ["bogus"]))
    talk.ask("DescribeConfigs of an unknown topic", 4, _describe("probe-nowhere", None))
    for label, kind, name in [
        ("this broker", BROKER, "1"),
        ("another broker", BROKER, "77"),
        ("no broker", BROKER, "x"),
        ("every broker", BROKER, ""),
        ("an unknown kind", 99, "1"),
    ]:
        resource = DescribeConfigsResource(kind, name, ["num.partitions"])
        talk.ask(f"DescribeConfigs of {label}", 4, DescribeConfigsRequest([resource]))


def _alter(topic: str, *configs: AlterableConfig, check: bool = False, kind: int = TOPIC) -> object:
    return IncrementalAlterConfigsRequest([AlterConfigsResource(kind, topic, list(configs))], check)


def probe_alter_configs(talk: Talk) -> None:
    topic = "probe-alter"
    talk.create_topic(topic)
    cases = {
        "set": [AlterableConfig("retention.ms", SET, "5000")],
        "append": [AlterableConfig("cleanup.policy", APPEND, "compact")],
        "append again": [AlterableConfig("cleanup.policy", APPEND, "compact")],
        "subtract": [AlterableConfig("cleanup.policy", SUBTRACT, "delete")],
        "append to a number": [AlterableConfig("retention.ms", APPEND, "7")],
        "set to null": [AlterableConfig("retention.ms", SET, None)],
        "delete": [AlterableConfig("retention.ms", DELETE, None)],
        "delete what is not set": [AlterableConfig("segment.ms", DELETE, None)],
        "an unknown operation": [AlterableConfig("retention.ms", 9, "1")],
        "an unknown name": [AlterableConfig("bogus", SET, "1")],
        "a bad value": [AlterableConfig("retention.ms", SET, "soon")],
        "a name twice": [AlterableConfig("retention.ms", SET, "1"), AlterableConfig("retention.ms", SET, "2")],
        "one good, one bad": [AlterableConfig("segment.ms", SET, "90000"), AlterableConfig("bogus", SET, "2")],
    }
    for label, configs in cases.items():
        talk.ask(f"IncrementalAlterConfigs {label}", 1, _alter(topic, *configs))
    talk.ask("IncrementalAlterConfigs v0", 0, _alter(topic, AlterableConfig("max.message.bytes", SET, "2000000")))
    checked = _alter(topic, AlterableConfig("retention.ms", SET, "42"), check=True)
    talk.ask("IncrementalAlterConfigs checked only", 1, checked)
    talk.ask(
        "IncrementalAlterConfigs of nothing", 1, _alter("probe-nowhere", AlterableConfig("retention.ms", SET, "1"))
    )
    talk.ask("IncrementalAlterConfigs of an unknown kind", 1, _alter("1", kind=99))
    _await_config(talk, topic, "max.message.bytes", "2000000")
    _describe_each(talk, "after IncrementalAlterConfigs", 4, topic)
    replaced = ReplacedResource(TOPIC, topic, [ReplacedConfig("segment.bytes", "2000000")])
    talk.ask("AlterConfigs", 2, AlterConfigsRequest([replaced]))
    bad = ReplacedResource(TOPIC, topic, [ReplacedConfig("segment.bytes", "many")])
    talk.ask("AlterConfigs of a bad value", 2, AlterConfigsRequest([bad]))
    talk.ask("AlterConfigs of nowhere", 2, AlterConfigsRequest([ReplacedResource(TOPIC, "probe-nowhere", [])]))
    checked_only = ReplacedResource(TOPIC, topic, [ReplacedConfig("segment.bytes", "3000000")])
    talk.ask("AlterConfigs checked only", 0, AlterConfigsRequest([checked_only], True))
    _await_config(talk, topic, "segment.bytes", "2000000")
    _describe_each(talk, "after AlterConfigs", 4, topic)


def _await_config(talk: Talk, topic: str, name: str, value: str) -> None:
    """Apache Kafka answers an alteration before its broker part has seen it."""

    def has_come(answer: object) -> bool:
        assert isinstance(answer, DescribeConfigsResponse)
        return [config.value for result in answer.results for config in result.configs] == [value]

    talk.wait_until(4, _describe(topic, [name]), has_come)


def probe_log_dirs(talk: Talk) -> None:
    """Paths and sizes differ between brokers; compared is which partitions are listed."""
    talk.create_topic("probe-dirs", 2)
    for label, topics in [
        ("a topic", [DescribableLogDirTopic("probe-dirs", [0, 1])]),
        ("nothing", []),
        ("an unknown partition", [DescribableLogDirTopic("probe-dirs", [9])]),
        ("an unknown topic", [DescribableLogDirTopic("probe-nowhere", [0])]),
    ]:
        for version in (1, 4):
            name = f"DescribeLogDirs v{version} of {label}"
            answer = talk.ask_quietly(version, DescribeLogDirsRequest(topics))
            assert isinstance(answer, DescribeLogDirsResponse)
            listed = [
                (t.name, sorted(p.partition_index for p in t.partitions)) for r in answer.results for t in r.topics
            ]
            errors = [answer.error_code, *(result.error_code for result in answer.results)]
            known = all((r.total_bytes > 0) == (version == 4) for r in answer.results)
            talk.keep(name, {"topics": listed, "errors": errors, "v4 has sizes": known})
