"""The leaders that a refused client is given: live brokers other than this one, with the addresses for its listener."""

from __future__ import annotations

from uuid import UUID

from ottla.broker.net.advertising import BrokerAddress
from ottla.broker.replicas.leader_hints import LeaderHints
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.coordination.broker_registry import BrokersView
from ottla.coordination.topics_view import PartitionNode, Topic, TopicsView
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import NO_LEADER, PartitionState, ReplicaIncarnation
from ottla.protocol.current_leaders import CurrentLeaders
from tests.unit.broker.live_brokers import BROKER_EPOCH, live

TOPIC_ID = UUID(int=7)
OWN, LIVE, OTHER, DEAD = NodeId(1), NodeId(2), NodeId(3), NodeId(9)
ADDRESS = ("reached.example", 9092)


def life(node_id: NodeId) -> ReplicaIncarnation:
    return ReplicaIncarnation(node_id, BROKER_EPOCH)


def view(*leaders: NodeId) -> TopicsView:
    """One topic whose partition `i` is led by `leaders[i]` in epoch `10 + i`."""
    nodes = (
        PartitionNode(i, (OWN, LIVE, OTHER), PartitionState(leader, LeaderEpoch(10 + i), (life(leader),)), 0)
        for i, leader in enumerate(leaders)
    )
    return TopicsView.of(1, {"t": Topic("t", TOPIC_ID, tuple(nodes))})


def address(node_id: NodeId) -> BrokerAddress:
    return BrokerAddress(node_id, f"host-{node_id}.example", 9092, None)


def hints(topics: TopicsView, brokers: BrokersView | None = None) -> LeaderHints:
    def brokers_for(local_address: tuple[str, int]) -> list[BrokerAddress]:
        assert local_address == ADDRESS
        return [address(OTHER), address(LIVE), address(OWN)]

    return LeaderHints(OWN, lambda: topics, lambda: brokers or live(OWN, LIVE, OTHER), brokers_for)


def test_leader_is_given_with_its_epoch_and_address_by_name_and_by_id() -> None:
    found = hints(view(LIVE, OTHER))
    assert found.by_name([(b"t", 1)], ADDRESS) == CurrentLeaders({(b"t", 1): (OTHER, 11)}, [address(OTHER)])
    assert found.by_id([(TOPIC_ID.bytes, 0)], ADDRESS) == CurrentLeaders(
        {(TOPIC_ID.bytes, 0): (LIVE, 10)}, [address(LIVE)]
    )


def test_leader_of_many_partitions_is_addressed_once() -> None:
    found = hints(view(OTHER, LIVE, OTHER)).by_name([(b"t", 0), (b"t", 1), (b"t", 2)], ADDRESS)
    assert found is not None
    assert found.endpoints == [address(LIVE), address(OTHER)]
    assert len(found.by_partition) == 3


def test_dead_leader_and_this_broker_are_not_given() -> None:
    # A view may be newer than what this broker has made of it: it refused, so a client must not be sent back.
    found = hints(view(DEAD, OWN, NO_LEADER, LIVE)).by_name([(b"t", i) for i in range(4)], ADDRESS)
    assert found == CurrentLeaders({(b"t", 3): (LIVE, 13)}, [address(LIVE)])
    assert hints(view(DEAD)).by_name([(b"t", 0)], ADDRESS) is None


def test_leader_that_has_registered_anew_is_not_given_before_it_is_elected() -> None:
    brokers = live(OWN, LIVE, OTHER)
    anew = brokers.by_id[LIVE]._replace(broker_epoch=BROKER_EPOCH + 1)
    found = hints(view(LIVE, OTHER), BrokersView(2, {**brokers.by_id, LIVE: anew}))
    assert found.by_name([(b"t", 0)], ADDRESS) is None
    assert found.by_name([(b"t", 1)], ADDRESS) == CurrentLeaders({(b"t", 1): (OTHER, 11)}, [address(OTHER)])


def test_partitions_that_do_not_exist_have_no_hint() -> None:
    found = hints(view(LIVE))
    assert found.by_name([(b"t", 1), (b"t", -1), (b"other", 0), (b"\xff", 0)], ADDRESS) is None
    assert found.by_id([(UUID(int=8).bytes, 0)], ADDRESS) is None


def test_nothing_refused_asks_nothing() -> None:
    assert hints(view(LIVE)).by_name([], ("never", 0)) is None


def test_broker_whose_lease_is_over_hints_at_nobody() -> None:
    lifecycle = BrokerLifecycle(OWN)
    found = LeaderHints(
        OWN, lambda: view(LIVE), lambda: live(OWN, LIVE), lambda _: [address(LIVE), address(OWN)], lifecycle
    )
    assert found.by_name([(b"t", 0)], ADDRESS) is not None
    lifecycle.is_suspended = True
    assert found.by_name([(b"t", 0)], ADDRESS) is None, "its view may be older than an election"
