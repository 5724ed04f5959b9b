"""A consumer group's settings take effect while it is served, and survive the broker's restart (KIP-848)."""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.schemas.find_coordinator import FindCoordinatorRequest
from ottla.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.raw_peer import RawPeer

GROUP, SET = 32, 0
SETTINGS = {"group.consumer.min.session.timeout.ms": "100", "group.consumer.min.heartbeat.interval.ms": "10"}


def ask(peer: RawPeer, api: ApiKey, version: int, request: object) -> object:
    peer.ask(api, version, request)
    return peer.answer(api, version)[1]


def alter(peer: RawPeer, **values: str) -> int:
    configs = [AlterableConfig(name.replace("_", "."), SET, value) for name, value in values.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP, "a/b", configs)])
    answer = ask(peer, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    return answer.responses[0].error_code


def beat(peer: RawPeer, epoch: int) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest("a/b", "m", epoch)
    if epoch == 0:
        request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 60_000, ["t"], []
    answer = ask(peer, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer


def joined(peer: RawPeer) -> ConsumerGroupHeartbeatResponse:
    """The first heartbeat that is accepted: a broker that has just started may still load its groups."""
    ask(peer, ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["a/b"]))
    answers: list[ConsumerGroupHeartbeatResponse] = []

    def is_taken() -> bool:
        answers.append(beat(peer, 0))
        return answers[-1].error_code == 0

    eventually(is_taken)
    return answers[-1]


def state(peer: RawPeer) -> str:
    answer = ask(peer, ApiKey.CONSUMER_GROUP_DESCRIBE, 0, ConsumerGroupDescribeRequest(["a/b"]))
    assert isinstance(answer, ConsumerGroupDescribeResponse)
    return answer.groups[0].group_state


def test_group_settings_apply_to_a_live_group_and_survive_a_restart() -> None:
    with RunningBroker(settings=SETTINGS) as broker:
        with RawPeer(broker) as peer:
            first = joined(peer)
            assert first.heartbeat_interval_ms == 5_000
            assert alter(peer, consumer_heartbeat_interval_ms="50", consumer_session_timeout_ms="300") == 0
            assert beat(peer, first.member_epoch).heartbeat_interval_ms == 50
            eventually(lambda: state(peer) == "Empty")
        broker.stop()
        broker.start()
        with RawPeer(broker) as peer:
            assert joined(peer).heartbeat_interval_ms == 50
            eventually(lambda: state(peer) == "Empty")
