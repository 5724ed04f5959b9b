"""The topic of claims: written with acknowledgement, and read in order."""

from __future__ import annotations

from typing import Final

from ottla.client.admin.admin import Admin, NewTopic
from ottla.client.fetching.offsets import log_ranges
from ottla.client.producing.acks import ProducerOptions
from ottla.client.producing.record_producer import RecordProducer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.client.wire.metadata import TopicInfo
from ottla.dead_letters.claims import Claim, Claims, from_json, to_json
from ottla.dead_letters.reading import messages_between
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.own_names import REPLAY_CLAIMS_TOPIC

_LOG: Final = TopicPartition(REPLAY_CLAIMS_TOPIC, 0)


class ClaimsLog:
    """`claims` is what was read so far."""

    def __init__(self, cluster: Cluster) -> None:
        self.claims: Final = Claims()
        self._cluster = cluster
        self._next_offset = 0

    def ensure(self, like: TopicInfo) -> None:
        """Make the topic when it is not there, with as many replicas as `like`."""
        replicas = max((len(each.replicas) for each in like.partitions.values()), default=1)
        new = NewTopic(REPLAY_CLAIMS_TOPIC, 1, replicas, {"cleanup.policy": "compact"})
        (outcome,) = Admin(self._cluster).create_topics([new]).values()
        if isinstance(outcome, BrokerRefused) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome

    def read(self) -> None:
        """All that is there now; nothing when there is no such topic.  Raises `UnreadableClaim`."""
        (found,) = self._cluster.refresh([REPLAY_CLAIMS_TOPIC])
        if found.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return
        log = log_ranges(self._cluster, [_LOG])[_LOG]
        self._read(max(self._next_offset, log.start), log.stop)

    def append(self, claim: Claim) -> None:
        """Write it, and read the log up to it.  Raises the client's errors: then it is written or not."""
        with RecordProducer(self._cluster, ProducerOptions(allow_auto_topic_creation=False)) as producer:
            now_ms = self._cluster.clock.now_ms()
            producer.add(REPLAY_CLAIMS_TOPIC, claim.claim_id.encode(), to_json(claim), timestamp_ms=now_ms, partition=0)
            (result,) = producer.flush()
        if result.error is not None:
            raise result.error
        self._read(self._next_offset, result.base_offset + 1)

    def _read(self, first: int, end: int) -> None:
        for message in messages_between(self._cluster, {_LOG: first}, {_LOG: end}):
            self.claims.apply(from_json(message.value))
        self._next_offset = max(self._next_offset, end)
