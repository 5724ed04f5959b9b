"""Reads and changes settings of topics and brokers (KIP-133, KIP-339)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, UnknownBroker, error_code_of
from ottla.client.wire.retrying import Deadline
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

T = TypeVar("T")


class ResourceType(IntEnum):
    """The owner of settings; the numbers are the protocol's."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigResource(NamedTuple):
    """`name` is that of a topic or a group, or a broker's node id; an empty one of a broker: the default of all."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name}"


class ConfigSource(IntEnum):
    """The source of a value (KIP-226)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class ConfigEntry(NamedTuple):
    """`value` is None where it is secret or not set."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool


class ConfigOperation(IntEnum):
    """APPEND and SUBTRACT change lists such as cleanup.policy."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """DELETE takes no value: it restores the default."""

    name: str
    operation: ConfigOperation
    value: str | None = None


def describe_configs(
    cluster: Cluster, resource: ConfigResource, names: Sequence[str] | None = None
) -> dict[str, ConfigEntry]:
    """The settings of one resource by name; raises BrokerRefused."""
    wanted = DescribeConfigsResource(resource.type, resource.name, None if names is None else list(names))
    request = DescribeConfigsRequest([wanted])
    response = _ask(cluster, resource, ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
    for result in response.results:
        if result.error_code:
            raise BrokerRefused(error_code_of(result.error_code), str(resource), result.error_message)
    return {
        row.name: ConfigEntry(row.name, row.value, _source(row.config_source), row.read_only, row.is_sensitive)
        for result in response.results
        for row in result.configs
    }


def alter_configs(
    cluster: Cluster, resource: ConfigResource, changes: Iterable[ConfigChange], *, validate_only: bool = False
) -> None:
    """Change some settings of one resource, leave the others unchanged; raises BrokerRefused."""
    rows = [AlterableConfig(change.name, change.operation, change.value) for change in changes]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(resource.type, resource.name, rows)], validate_only)
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    response = _ask(cluster, resource, api, request, IncrementalAlterConfigsResponse)
    for result in response.responses:
        if result.error_code:
            raise BrokerRefused(error_code_of(result.error_code), str(resource), result.error_message)


def _ask(cluster: Cluster, resource: ConfigResource, api: ApiKey, request: object, answer: type[T]) -> T:
    """Only the broker itself knows its own settings."""
    if resource.type is not ResourceType.BROKER or not resource.name.isdigit():
        return cluster.call_any(api, request, answer)

    def attempt(deadline: Deadline) -> T:
        cluster.refresh([], deadline=deadline)
        if int(resource.name) not in cluster.info.brokers:
            raise UnknownBroker(f"{resource} is not in the cluster now")
        return cluster.connect_broker(int(resource.name), deadline).call(api, request, answer, deadline)

    return cluster.retrying.run(api.name, attempt, cluster.retrying.deadline())


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN
