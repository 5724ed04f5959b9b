"""DescribeTopicPartitions in pages, and which resources have settings."""

from __future__ import annotations

from ottla.protocol.schemas.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.schemas.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tests.interop.probes.talk import Talk

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
ONE, TWO = "probe-pages-1", "probe-pages-2"


def _request(*names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    begin = None if cursor is None else Cursor(*cursor)
    return DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, begin)


def probe_describe_topic_partitions(talk: Talk) -> None:
    talk.create_topic(ONE, 2)
    talk.create_topic(TWO, 3)
    cases = {
        "both": _request(TWO, ONE),
        "the same twice": _request(ONE, ONE),
        "an unknown and an illegal one": _request("probe-nowhere", "probe/illegal", ONE),
        "an empty name": _request(""),
        "an internal one that is not there": _request("__transaction_state"),
        "the first page": _request(ONE, TWO, limit=1),
        "a page that ends with a topic": _request(ONE, TWO, limit=2),
        "a page that ends with the last topic": _request(ONE, limit=2),
        "a page within the second topic": _request(ONE, TWO, limit=4),
        "a full page before an unknown one": _request(ONE, "probe-pages-x", limit=2),
        "no room at all": _request(ONE, limit=0),
        "less than no room": _request(ONE, limit=-5),
        "from a cursor": _request(ONE, TWO, cursor=(ONE, 1)),
        "from a cursor's topic that is not named": _request(TWO, cursor=(ONE, 1)),
        "from a cursor behind all that are named": _request(ONE, cursor=(TWO, 1)),
        "from a cursor's unknown topic": _request(TWO, cursor=("probe-pages-15", 1)),
        "from behind the last partition": _request(ONE, TWO, cursor=(ONE, 2)),
        "from far behind the last partition": _request(ONE, TWO, cursor=(ONE, 77)),
        "from a negative partition": _request(ONE, TWO, cursor=(ONE, -1)),
        "all from a cursor on": _request(limit=3, cursor=(ONE, 0)),
        "all from an unknown topic on": _request(limit=2, cursor=("probe-pages-15", 1)),
        "all from a negative partition": _request(cursor=(ONE, -1)),
    }
    for label, request in cases.items():
        talk.ask(f"DescribeTopicPartitions of {label}", 0, request)


def probe_list_config_resources(talk: Talk) -> None:
    """Other scripts create the same resources on both brokers; the lists are sorted before comparison."""
    talk.create_topic("probe-resource", 1)
    change = AlterableConfig("consumer.session.timeout.ms", 0, "50000")
    altered = AlterConfigsResource(GROUP, "probe-resource-group", [change])
    talk.ask_quietly(1, IncrementalAlterConfigsRequest([altered]))

    def has_come(answer: object) -> bool:
        assert isinstance(answer, ListConfigResourcesResponse)
        return any(each.resource_name == "probe-resource-group" for each in answer.config_resources)

    talk.wait_until(1, ListConfigResourcesRequest([GROUP]), has_come)
    for label, version, types in [
        ("v0", 0, []),
        ("all", 1, []),
        ("topics", 1, [TOPIC]),
        ("brokers", 1, [BROKER]),
        ("loggers", 1, [LOGGER]),
        ("metrics", 1, [METRICS]),
        ("groups", 1, [GROUP]),
        ("two kinds", 1, [BROKER, GROUP]),
        ("a kind twice", 1, [BROKER, BROKER]),
        ("an unknown kind", 1, [99]),
        ("no kind", 1, [0]),
        ("a good and a bad one", 1, [BROKER, 99]),
    ]:
        answer = talk.ask_quietly(version, ListConfigResourcesRequest(types))
        assert isinstance(answer, ListConfigResourcesResponse)
        told = sorted((each.resource_type, each.resource_name) for each in answer.config_resources)
        talk.keep(f"ListConfigResources of {label}", {"error_code": answer.error_code, "resources": told})
