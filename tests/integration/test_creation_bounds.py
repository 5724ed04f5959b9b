"""Topics are created automatically until the broker has no room for more: it continues to serve clients."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.testing.broker import RunningBroker
from tests.integration.raw_peer import RawPeer

METADATA_VERSION = 9
OPEN_FILES_MAX = 160
NAMES_COUNT = 300
LIMITED = ("sh", "-c", f'ulimit -n {OPEN_FILES_MAX}; exec "$0" "$@"', sys.executable, "-m", "ottla")
UNBOUNDED = {"max.auto.create.topics.per.minute": "-1"}


def errors_of(broker: RunningBroker, names: range) -> Counter[ErrorCode]:
    """The error codes of one metadata request for the topics with these numbers."""
    with RawPeer(broker) as peer:
        wanted = [MetadataRequestTopic(name=f"wild-{number}") for number in names]
        peer.ask(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=wanted, allow_auto_topic_creation=True))
        _, answer = peer.answer(ApiKey.METADATA, METADATA_VERSION)
    assert isinstance(answer, MetadataResponse)
    return Counter(ErrorCode(topic.error_code) for topic in answer.topics)


def test_names_create_topics_only_while_connections_and_the_next_start_have_room() -> None:
    with RunningBroker(command=LIMITED, settings=UNBOUNDED) as broker:
        errors = errors_of(broker, range(NAMES_COUNT))
        made_count = errors[ErrorCode.NONE]
        assert errors == {ErrorCode.NONE: made_count, ErrorCode.POLICY_VIOLATION: NAMES_COUNT - made_count}
        assert OPEN_FILES_MAX // 3 < made_count < OPEN_FILES_MAX
        with Cluster(broker.bootstrap) as cluster:
            admin = Admin(cluster)
            admin.create_topic("asked-for", 10)
            with pytest.raises(BrokerRefused, match="the limit of open files") as refusal:
                admin.create_topic("too-much", OPEN_FILES_MAX)
            assert refusal.value.code is ErrorCode.POLICY_VIOLATION
        assert broker.stop() == 0  # its log has been read to the end then
        # Each time that room ended, unless that was within one second.
        assert 1 <= sum("topic.refused" in line for line in broker.log_lines) <= 2
        broker.start()
        assert errors_of(broker, range(made_count)) == {ErrorCode.NONE: made_count}


def test_one_connection_creates_no_more_than_its_share_of_topics() -> None:
    with RunningBroker(settings={"max.auto.create.topics.per.minute": "5"}) as broker:
        assert errors_of(broker, range(20)) == {ErrorCode.NONE: 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 15}
        assert errors_of(broker, range(20))[ErrorCode.NONE] == 10, "another connection has its own"
