"""One of the two clusters of a mirror: reads its topics, and creates and changes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ottla.client.admin.admin import Admin, NewTopic
from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ConfigSource, ResourceType
from ottla.client.fetching.offsets import LATEST, OffsetAnswer, try_list_offsets
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, ClientError
from ottla.client.wire.metadata import TopicInfo
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.security_argument import given_security
from ottla.client.wire.security.settings import ClientSecurity
from ottla.mirror.journal import MirrorJournal
from ottla.mirror.options import Names
from ottla.mirror.plan import ClusterTopics, TopicPlan, TopicView
from ottla.mirror.progress_topic import read_journal
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

_MADE_MEANWHILE: Final = ErrorCode.TOPIC_ALREADY_EXISTS


_CLIENT_ID: Final = "ottla-mirror"


def client_of_side(
    client: ClientOptions | None, security: ClientSecurity | Mapping[str, object] | None
) -> ClientOptions:
    """`security`, where given, replaces that of `client`.  Raises ConfigError."""
    given = client or ClientOptions(client_id=_CLIENT_ID)
    return given if security is None else replace(given, security=given_security(security))


class NoClusterId(OttlaError):
    hint = "mirrors distinguish clusters by their ids, to keep records from going in circles; use Kafka 0.10.1 or newer"


class MirroredCluster:
    """`cluster` belongs to the caller."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._admin = Admin(cluster)

    def cluster_id(self) -> str:
        found = self._admin.describe_cluster().cluster_id
        if not found:
            raise NoClusterId("the cluster has no id")
        return found

    def view(self, is_wanted: Callable[[TopicInfo], bool], journal: MirrorJournal | None = None) -> ClusterTopics:
        """Topics with their own settings; claims as `journal` has them, or read now."""
        cluster_id = self.cluster_id()
        found = [topic for topic in self._admin.list_topics() if not topic.error_code and is_wanted(topic)]
        claims = (journal or read_journal(self.cluster)).claims
        views = {
            topic.name: TopicView(
                topic.name, topic.topic_id, len(topic.partitions), topic.is_internal, self.topic_configs(topic.name)
            )
            for topic in found
        }
        return ClusterTopics(cluster_id, views, dict(claims))

    def topic_configs(self, topic: str) -> dict[str, str]:
        """The topic's own settings, without those that it inherits from its broker."""
        try:
            entries = self._admin.describe_configs(ConfigResource(ResourceType.TOPIC, topic))
        except BrokerRefused as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return {}  # deleted in between
            raise
        return {
            name: entry.value
            for name, entry in entries.items()
            if entry.source is ConfigSource.DYNAMIC_TOPIC and entry.value is not None
        }

    def topics_with_records(self, partitions_counts: Mapping[str, int]) -> dict[str, bool | None]:
        """Of each topic whether it ever had records; None: a partition that may have them cannot be read now."""
        asked = {
            TopicPartition(topic, each): LATEST for topic, count in partitions_counts.items() for each in range(count)
        }
        found: dict[str, bool | None] = dict.fromkeys(partitions_counts, False)
        for partition, answer in try_list_offsets(self.cluster, asked).items():
            if not isinstance(answer, OffsetAnswer):
                found[partition.topic] = found[partition.topic] or None
            elif answer.offset > 0:
                found[partition.topic] = True
        return found

    def make(self, plan: TopicPlan, replication_factor: int) -> None:
        """Bring the topic in step with the plan.  Raises ClientError."""
        resource = ConfigResource(ResourceType.TOPIC, plan.topic)
        if plan.target_partitions_count == 0:
            new = NewTopic(plan.topic, plan.partitions_count, replication_factor, dict(plan.set_configs))
            self._check(self._admin.create_topics([new]), allowed={_MADE_MEANWHILE})
            # Facts about a deleted topic of this name are not valid any more.
            self.cluster.forget([plan.topic])
            return
        if plan.adds_partitions:
            self._check(self._admin.create_partitions({plan.topic: plan.partitions_count}))
        changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in plan.set_configs.items()]
        changes += [ConfigChange(name, ConfigOperation.DELETE) for name in plan.unset_configs]
        if changes:
            self._admin.alter_configs(resource, changes)

    def check(self, plan: TopicPlan, replication_factor: int) -> str | None:
        """Why the target would refuse what is planned; None when it would not."""
        try:
            if plan.target_partitions_count == 0:
                new = NewTopic(plan.topic, plan.partitions_count, replication_factor, dict(plan.set_configs))
                self._check(self._admin.create_topics([new], validate_only=True))
            elif plan.set_configs:
                changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in plan.set_configs.items()]
                self._admin.alter_configs(ConfigResource(ResourceType.TOPIC, plan.topic), changes, validate_only=True)
        except ClientError as error:
            return str(error)
        return None

    @staticmethod
    def _check(outcomes: Mapping[str, object], allowed: Collection[ErrorCode] = ()) -> None:
        for outcome in outcomes.values():
            if isinstance(outcome, BrokerRefused) and outcome.code not in allowed:
                raise outcome


def is_selected(names: Names) -> Callable[[TopicInfo], bool]:
    return lambda topic: topic.name in names and not topic.is_internal


def is_one_of(names: Sequence[str]) -> Callable[[TopicInfo], bool]:
    wanted = frozenset(names)
    return lambda topic: topic.name in wanted
