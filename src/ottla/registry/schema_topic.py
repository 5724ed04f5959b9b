"""The registry's topic: created, read up to its end, appended to.

Blocking: one thread at a time may read, and one append, each with its own connections.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.fetching.offsets import log_ranges
from ottla.client.producing.settings import ProducerOptions
from ottla.client.topic_log import NotAppended, TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.client.wire.metadata import TopicInfo
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity
from ottla.model.error_code import ErrorCode
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import DAY_MS
from ottla.observe.events import fields
from ottla.records.record import Headers
from ottla.registry.errors import RegistryCode, RegistryError
from ottla.registry.records import CLAIM_HEADER
from ottla.registry.state import RegistryState

log = logging.getLogger(__name__)

REPLICAS_MAX: Final = 3
IN_SYNC_MIN: Final = 2
CALL_TIMEOUT_MS: Final = 15_000
# The next writer corrects the records of an overtaken one long before they are compacted.
MIN_COMPACTION_LAG_MS: Final = DAY_MS

_CLEANUP: Final = "cleanup.policy"
_CLIENT_ID: Final = "ottla-registry"


class SchemaTopic:
    """One partition.  Failures of the cluster are `OttlaError`s of the client."""

    def __init__(self, bootstrap: str, topic: str, security: ClientSecurity = PLAINTEXT) -> None:
        self._topic = topic
        self._partition = TopicPartition(topic, 0)
        options = ClientOptions(
            _CLIENT_ID, call_timeout_ms=CALL_TIMEOUT_MS, request_timeout_ms=CALL_TIMEOUT_MS, security=security
        )
        self._cluster = Cluster(bootstrap, options)
        self._appending = Cluster(bootstrap, options)
        delivery = ProducerOptions(delivery_timeout_ms=CALL_TIMEOUT_MS, allow_auto_topic_creation=False)
        self._reads = TopicLog(self._cluster, topic)
        self._appends = TopicLog(self._appending, topic, delivery)

    def close(self) -> None:
        self._cluster.close()
        self._appending.close()

    def prepare(self, replication_factor: int | None = None) -> None:
        """Create the topic unless it exists, by default with as many replicas as there are brokers, 3 at most.

        Raises `ConfigError` when it is not fit to keep schemas for ever, and `BrokerRefused` when there are fewer
        brokers than replicas.
        """
        admin = Admin(self._cluster)
        found = next((each for each in admin.list_topics() if each.name == self._topic), None)
        if found is None:
            self._create(admin, replication_factor)
            return
        self._warn_of_replicas(admin, found)
        policy = admin.describe_configs(ConfigResource(ResourceType.TOPIC, self._topic), [_CLEANUP])[_CLEANUP].value
        if policy != "compact":
            raise ConfigError(
                f"the topic {self._topic} has {_CLEANUP}={policy}, and would lose schemas",
                hint=f"ottla topic alter {self._topic} --config {_CLEANUP}=compact",
            )
        if len(found.partitions) != 1:
            raise ConfigError(
                f"the topic {self._topic} has {len(found.partitions)} partitions, and schemas need the order of one",
                hint="name another topic with --topic (schema.registry.topic)",
            )

    def read(self, state: RegistryState) -> None:
        """Apply what was appended since the last time.  Raises `RegistryError` when the topic has become shorter."""
        log_range = log_ranges(self._cluster, [self._partition])[self._partition]
        if log_range.stop < state.next_offset:
            raise RegistryError(
                RegistryCode.STORE_ERROR,
                f"the topic {self._topic} ends at offset {log_range.stop} and was read up to {state.next_offset}: it "
                "was deleted, or has lost records; start the registry again to continue with the remaining records",
            )
        for message in self._reads.read_in({self._partition: log_range}):
            if message.offset >= state.next_offset:
                state.apply(message.offset, message.key, message.value, _claim_in(message.headers))
        # Compaction may have removed the last records.
        state.skip_to(log_range.stop)

    def append(self, records: Sequence[tuple[bytes, bytes | None]], claim: int | None) -> None:
        """Return when the records are stored on all in-sync replicas; after an error they may or may not be."""
        headers: Headers = () if claim is None else ((CLAIM_HEADER, str(claim).encode()),)
        try:
            self._appends.append(records, headers=headers, partition=0)
        except NotAppended as error:
            raise error.reason from None

    def _warn_of_replicas(self, admin: Admin, found: TopicInfo) -> None:
        """Such as of a topic that was created when there were fewer brokers."""
        replicas = min((len(partition.replicas) for partition in found.partitions.values()), default=0)
        brokers = len(admin.describe_cluster().brokers)
        if replicas < min(brokers, REPLICAS_MAX):
            log.warning("topic.has_few_replicas", extra=fields(topic=self._topic, replicas=replicas, brokers=brokers))

    def _create(self, admin: Admin, replication_factor: int | None) -> None:
        replicas = replication_factor or min(len(admin.describe_cluster().brokers), REPLICAS_MAX)
        configs = {_CLEANUP: "compact", "min.compaction.lag.ms": str(MIN_COMPACTION_LAG_MS)}
        if replicas >= REPLICAS_MAX:
            configs["min.insync.replicas"] = str(IN_SYNC_MIN)
        try:
            admin.create_topic(self._topic, 1, replicas, configs=configs)
        except BrokerRefused as refusal:
            # Another registry was faster.
            if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def _claim_in(headers: Headers) -> int | None:
    for name, content in headers:
        if name == CLAIM_HEADER and content is not None and content.isdigit():
            return int(content)
    return None
