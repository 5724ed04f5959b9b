"""The topic of claims: written with acknowledgement, and read in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.client.admin.admin import Admin, NewTopic
from ottla.client.fetching.messages import Message
from ottla.client.fetching.offsets import IsolationLevel
from ottla.client.producing.settings import ProducerOptions
from ottla.client.topic_log import NotAppended, TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.client.wire.metadata import TopicInfo
from ottla.dead_letters.claims import Claims, ReplayClaim, from_json, to_json
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.own_names import REPLAY_CLAIMS_TOPIC
from ottla.records.builder import BatchBuilder

CLAIMS_PARTITION: Final = TopicPartition(REPLAY_CLAIMS_TOPIC, 0)


class ClaimsLog:
    """`claims` has the claims that were read so far."""

    def __init__(self, cluster: Cluster) -> None:
        self.claims: Final = Claims()
        self._cluster = cluster
        self._log = TopicLog(
            cluster,
            REPLAY_CLAIMS_TOPIC,
            ProducerOptions(allow_auto_topic_creation=False),
            isolation=IsolationLevel.READ_COMMITTED,
        )

    def ensure(self, like: TopicInfo) -> None:
        """Create the topic unless it exists, with as many replicas as `like`."""
        replicas = max((len(each.replicas) for each in like.partitions.values()), default=1)
        new = NewTopic(REPLAY_CLAIMS_TOPIC, 1, replicas, {"cleanup.policy": "compact"})
        (outcome,) = Admin(self._cluster).create_topics([new]).values()
        if isinstance(outcome, BrokerRefused) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome

    def read(self) -> None:
        """Apply all claims that are stored now; none when there is no such topic.  Raises `UnreadableClaim`."""
        if self._log.exists():
            self._apply(self._log.read())

    def append(self, claim: ReplayClaim) -> None:
        """Write a claim, and read the log up to it.  Raises the client's errors: then it may or may not be stored."""
        try:
            (result,) = self._log.append([(claim.claim_id.encode(), to_json(claim))], partition=0)
        except NotAppended as error:
            raise error.reason from None
        self._apply(self._log.read_in({CLAIMS_PARTITION: range(result.base_offset + 1)}))

    def batch(self, claim: ReplayClaim) -> bytearray:
        """The claim for a transaction of its id."""
        builder = BatchBuilder()
        builder.append(self._cluster.clock.now_ms(), claim.claim_id.encode(), to_json(claim))
        return builder.build(is_transactional=True)

    def _apply(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.claims.apply(from_json(message.value))
