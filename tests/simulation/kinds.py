"""The product's parts that a simulation runs.  A mutant replaces one of them by a faulty one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.coordination import elections, generations, reassignment
from ottla.coordination.elections import ElectionRules
from ottla.coordination.topics_view import PartitionNode, Topic
from ottla.model.partition_state import ReplicaIncarnation
from ottla.replication.replica import Replica

if TYPE_CHECKING:
    from tests.simulation.broker import Disk


class Kinds:
    """The real ones."""

    replica: type[Replica] = Replica
    elected: Callable[..., Any] = staticmethod(elections.elected)
    preferred: Callable[..., Any] = staticmethod(elections.preferred)
    reaffirmed: Callable[..., Any] = staticmethod(elections.reaffirmed)
    given_way: Callable[..., Any] = staticmethod(elections.given_way)
    due: Callable[..., list[Any]] = staticmethod(elections.due)
    requested: Callable[..., Any] = staticmethod(reassignment.requested)
    completed: Callable[..., Any] = staticmethod(reassignment.completed)
    is_stale: Callable[..., bool] = staticmethod(generations.is_stale)
    next_generation: Callable[..., int] = staticmethod(generations.next_generation)
    moves_directory_first = True

    def election_rules(self, min_in_sync: int, *, allows_unclean: bool) -> ElectionRules:
        def effective(topic: Topic, partition: PartitionNode) -> int:
            return min(min_in_sync, partition.replicas_count_min)

        return ElectionRules(effective, lambda topic: allows_unclean)

    def has_lease(self, lease_until_ms: float, now_ms: int) -> bool:
        return now_ms < lease_until_ms

    def holds(self, disk: Disk, member: ReplicaIncarnation) -> bool:
        return disk.holds(member.broker_epoch)
