"""Settings of single consumer groups."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.protocol.schemas.alter_configs import AlterableConfig as ReplacedConfig
from ottla.protocol.schemas.alter_configs import AlterConfigsRequest
from ottla.protocol.schemas.alter_configs import AlterConfigsResource as ReplacedResource
from ottla.protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.interop.probes.talk import Talk

GROUP = 32
SET, DELETE, APPEND = range(3)
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def _describe(group: str, names: Sequence[str] = (SESSION, INTERVAL)) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(GROUP, group, list(names))], include_synonyms=True)


def _alter(group: str, *configs: AlterableConfig, check: bool = False) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP, group, list(configs))], check)


def _await(talk: Talk, group: str, name: str, value: str) -> None:
    """Apache Kafka answers an alteration before its broker part has seen it."""

    def has_come(answer: object) -> bool:
        assert isinstance(answer, DescribeConfigsResponse)
        return [config.value for result in answer.results for config in result.configs] == [value]

    talk.wait_until(4, _describe(group, [name]), has_come)


def probe_group_configs(talk: Talk) -> None:
    group = "probe-group-configs"
    for version in (1, 4):
        talk.ask(f"DescribeConfigs v{version} of a group that was never there", version, _describe(group, [SESSION]))
    talk.ask("DescribeConfigs of no group", 4, _describe(""))
    cases = {
        "set": [AlterableConfig(SESSION, SET, "50000")],
        "too short": [AlterableConfig(SESSION, SET, "44999")],
        "too long": [AlterableConfig(SESSION, SET, "60001")],
        "beats too often": [AlterableConfig(INTERVAL, SET, "4999")],
        "beats too seldom": [AlterableConfig(INTERVAL, SET, "15001")],
        "a bad value": [AlterableConfig(SESSION, SET, "soon")],
        "null": [AlterableConfig(SESSION, SET, None)],
        "append": [AlterableConfig(SESSION, APPEND, "50000")],
        "an unknown name": [AlterableConfig("bogus", SET, "1")],
        "delete an unknown name": [AlterableConfig("bogus", DELETE, None)],
        "one good, one bad": [AlterableConfig(INTERVAL, SET, "6000"), AlterableConfig("bogus", SET, "2")],
    }
    for label, configs in cases.items():
        talk.ask(f"IncrementalAlterConfigs of a group: {label}", 1, _alter(group, *configs))
    checked = _alter(group, AlterableConfig(INTERVAL, SET, "7000"), check=True)
    talk.ask("IncrementalAlterConfigs of a group, checked only", 1, checked)
    talk.ask("IncrementalAlterConfigs of no group", 1, _alter("", AlterableConfig(SESSION, SET, "50000")))
    _await(talk, group, SESSION, "50000")
    for name in (SESSION, INTERVAL):
        talk.ask(f"DescribeConfigs of a group: {name}", 4, _describe(group, [name]))
    replaced = ReplacedResource(GROUP, group, [ReplacedConfig(INTERVAL, "6000")])
    talk.ask("AlterConfigs of a group", 2, AlterConfigsRequest([replaced]))
    bad = ReplacedResource(GROUP, group, [ReplacedConfig(INTERVAL, "1")])
    talk.ask("AlterConfigs of a group, too often", 2, AlterConfigsRequest([bad]))
    _await(talk, group, INTERVAL, "6000")
    for name in (SESSION, INTERVAL):
        talk.ask(f"DescribeConfigs after AlterConfigs: {name}", 4, _describe(group, [name]))
    odd = "probe/ ..group"
    talk.ask("IncrementalAlterConfigs of an odd name", 1, _alter(odd, AlterableConfig(INTERVAL, SET, "6000")))
    _await(talk, odd, INTERVAL, "6000")
    talk.ask("DescribeConfigs of an odd name", 4, _describe(odd, [INTERVAL]))
    talk.ask("delete the last", 1, _alter(odd, AlterableConfig(INTERVAL, DELETE, None)))
    _await(talk, odd, INTERVAL, "5000")
    talk.ask("DescribeConfigs without the last", 4, _describe(odd, [INTERVAL]))
