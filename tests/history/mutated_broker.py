"""`ottla` with a fault planted in its groups or producers: the checker must detect each of them.

python -m tests.history.mutated_broker MUTATION serve ...
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.cli import main
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.consumer.state import ConsumerGroupState
from ottla.groups.shard import GroupShard
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_PRODUCER_ID
from ottla.runtime.disk import Disk
from ottla.storage.log.flush import FlushPlan
from tests.history.clients import CONSUMER, RANGE, MemberKind
from tests.history.report import Anomaly
from tests.history.workload import PAUSE_S, Fault
from tests.kill.mutated_broker import forget_producers

_KEY_VERSION: Final = struct.Struct(">h")
FLUSH_LATE_S: Final = 0.1
_OFFSET_KEYS: Final = frozenset({0, 1})


def forget_commits() -> None:
    """A start replays groups without their committed offsets."""
    replay = GroupShard.replay

    def replay_groups_only(
        shard: GroupShard, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        if _KEY_VERSION.unpack_from(key)[0] not in _OFFSET_KEYS:
            replay(shard, key, value, producer_id)

    GroupShard.replay = replay_groups_only  # type: ignore[assignment, method-assign]


def forget_producers_of_late_answers() -> None:
    """Recovery rebuilds no producer state.

    Only a batch that was stored and not acknowledged is sent twice.  Late flushes are no fault, and with them
    such batches exist at every kill.
    """
    forget_producers()
    execute = FlushPlan.execute

    def execute_late(plan: FlushPlan, disk: Disk) -> None:
        time.sleep(FLUSH_LATE_S)
        execute(plan, disk)

    FlushPlan.execute = execute_late  # type: ignore[assignment, method-assign]


def accept_every_commit() -> None:
    """Commits are accepted from any member and generation."""
    ClassicGroup.check_commit = lambda *_: ErrorCode.NONE  # type: ignore[method-assign]


def give_what_others_hold() -> None:
    """A partition goes to its next owner before the former one has released it."""
    ConsumerGroupState.holder = lambda *_: None  # type: ignore[method-assign]


class Planted(NamedTuple):
    """A mutation, the group and the faults that reveal it, and the anomalies of which the checker must report one."""

    plant: Callable[[], None]
    kinds: Sequence[MemberKind]
    faults: Sequence[Fault]
    expected: frozenset[Anomaly]
    pause_s: tuple[float, float] = PAUSE_S


MUTATIONS: Final[Mapping[str, Planted]] = {
    "accept-every-commit": Planted(
        accept_every_commit,
        RANGE,
        (Fault.PAUSE_MEMBER,) * 4,
        frozenset({Anomaly.STALE_COMMIT, Anomaly.COMMIT_WENT_BACK}),
    ),
    # The broker is killed while the dead member's partitions have no owner, so no member commits them again.
    "forget-commits": Planted(
        forget_commits,
        RANGE,
        (Fault.KILL_MEMBER, Fault.KILL_BROKER) * 4,
        frozenset({Anomaly.COMMIT_LOST}),
        pause_s=(0.2, 0.8),
    ),
    "forget-producers": Planted(
        forget_producers_of_late_answers, RANGE, (Fault.KILL_BROKER,) * 6, frozenset({Anomaly.DUPLICATE})
    ),
    "give-what-others-hold": Planted(
        give_what_others_hold,
        CONSUMER,
        (Fault.REPLACE_MEMBER,) * 12,
        frozenset({Anomaly.STALE_COMMIT, Anomaly.COMMIT_WENT_BACK}),
        pause_s=(0.5, 2.0),
    ),
}

if __name__ == "__main__":
    MUTATIONS[sys.argv.pop(1)].plant()
    main()
