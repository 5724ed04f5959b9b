"""Power cuts, full and broken disks, damaged and lost ones: each broker has its own file system."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.producing.produce_requests import ACKS_ALL, ACKS_LEADER
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.metadata import TopicInfo
from ottla.storage.log.flush import STUCK_FLUSH_MS
from ottla.storage.log_files import LOG_SUFFIX
from ottla.testing.broker import RunningBroker
from tests.cluster.direct_writer import DirectWriter
from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.cluster.fencing import WRITES_BEFORE, fenced_partition
from tests.cluster.injected_calls import injected
from tests.cluster.servability import ALL
from tests.cluster.target import Fault, Target
from tests.history.clients import PARTITIONS_COUNT, TOPIC, is_acknowledged
from tests.history.recorder import now_ns

# How long a disk is full or broken.
ILL_S: Final = (1.0, 5.0)
# A batch's own head; a flip there is found when the batch is, as everywhere in it.
_FLIPPED_BYTES: Final = 8
_SYNCS: Final = "fdatasync,fsync,syncfs"
_WRITES: Final = "pwrite64,pwritev"
# Some of these calls exist on some architectures only.
_RENAMES: Final = "?rename,?renameat,?renameat2"
# A disk that other processes keep busy.
SLOW_SYNC_MS: Final = 300
SLOW_S: Final = (3.0, 10.0)
# A disk or controller that retries a bad sector.
STUCK_SYNC_MS: Final = 20_000
STUCK_S: Final = (20.0, 45.0)
# A broker whose syncs are late answers requests that need none.  It is traced, and shares the machine with all others.
ANSWERS_WITHIN_S: Final = 10.0
_ASK_EVERY_S: Final = 0.2
# The others serve what a broker with a stuck disk led and followed: after the time until it gives way, the aim of 10 s
# for the elections and for every client to find the new leaders.
_SERVED_WITHIN_S: Final = STUCK_FLUSH_MS / 1000 + 10.0


def power_cut_leader(target: Target) -> str:
    return _power_cut(target, [target.leader()])


def power_cut_two(target: Target) -> str:
    """As many as may acknowledge a record."""
    return _power_cut(target, target.random.sample(list(target.cluster.brokers.values()), 2))


def power_cut_all(target: Target) -> str:
    """A power cut of all machines."""
    return _power_cut(target, list(target.cluster.brokers.values()))


def _power_cut(target: Target, brokers: Sequence[RunningBroker]) -> str:
    """At the same moment: none of them notices that another one is down."""
    disks = [target.site.disks[broker.node_id or 0] for broker in brokers]
    for broker in brokers:
        broker.pause()
    for disk in disks:
        disk.cut()
    for broker in brokers:
        broker.kill()
    target.wait_a_while()
    gone = [disk.restart() for disk in disks]
    _start(brokers)
    names = ", ".join(str(broker.node_id) for broker in brokers)
    return f"power cut of {names}: unflushed file gone from {sum(gone)} of {len(gone)} disks"


def disk_dies(target: Target) -> str:
    """Every read and write fails from one moment on, and the broker runs for a while; then the machine restarts."""
    broker = target.leader()
    disk = target.site.disks[broker.node_id or 0]
    disk.cut()
    time.sleep(target.random.uniform(*ILL_S))
    broker.kill()
    disk.restart()
    broker.start()
    return f"the disk of broker {broker.node_id} answered EIO, and came back without what was not flushed"


def disk_full(target: Target) -> str:
    """No room for a while; the broker must recover automatically when there is some."""
    broker = target.leader()
    disk = target.site.disks[broker.node_id or 0]
    disk.fill()
    try:
        time.sleep(target.random.uniform(*ILL_S))
    finally:
        disk.empty()
    if not broker.is_running:
        raise FaultWithoutEffect(f"broker {broker.node_id} ended when its disk was full: {broker.log_lines[-3:]}")
    return f"the disk of broker {broker.node_id} answered ENOSPC"


def sync_fails(target: Target) -> str:
    """EIO of the syncs of a leader: unflushed data may be lost even when a later sync succeeds.

    So it acknowledges nothing that was sent to it after the first failure, also when syncs succeed again.
    """
    partition, broker = fenced_partition(target)
    with DirectWriter(broker, partition, ACKS_ALL) as of_all, DirectWriter(broker, partition, ACKS_LEADER) as of_leader:
        for writer in (of_all, of_leader):
            writer.wait_for_acknowledgements(WRITES_BEFORE)
        with injected([broker], _SYNCS, "error=EIO:when=1+") as struck:
            time.sleep(target.random.uniform(*ILL_S))
            struck_count, failed_ms = struck.count(), struck.first_at_ms()
        time.sleep(target.random.uniform(*ILL_S))
        broker.kill()
    broker.start()
    shown = []
    for writer in (of_all, of_leader):
        late = [each for each in writer.acknowledged if each.sent_ms > failed_ms]
        if late:
            target.clients.problems.append(
                f"broker {broker.node_id} acknowledged {len(late)} writes with acks={writer.acks} that were sent after "
                f"a sync had failed, the last one {late[-1].sent_ms - failed_ms:.0f} ms after it"
            )
        shown.append(f"acks={writer.acks} {len(writer.acknowledged)} before it, {len(late)} after it")
    return f"{struck_count} of {_SYNCS} of {_ids_of([broker])} answered EIO; acknowledged: {'; '.join(shown)}"


def sync_fails_at_follower(target: Target) -> str:
    """It must not acknowledge records that it could not flush."""
    return _with_failing_calls(target, [target.follower()], _SYNCS, "when=1+")


def sync_fails_everywhere(target: Target) -> str:
    """No broker can flush: nothing may be acknowledged until the operator has restarted one."""
    return _with_failing_calls(target, list(target.cluster.brokers.values()), _SYNCS, "when=1+")


def write_fails(target: Target) -> str:
    """EIO of one write of a leader."""
    return _with_failing_calls(target, [target.leader()], _WRITES, "when=1")


def write_fails_at_follower(target: Target) -> str:
    return _with_failing_calls(target, [target.follower()], _WRITES, "when=1")


def write_fails_everywhere(target: Target) -> str:
    return _with_failing_calls(target, list(target.cluster.brokers.values()), _WRITES, "when=1")


def rename_fails(target: Target) -> str:
    """EIO of every rename of a leader for a while: of checkpoints, for the most part."""
    return _with_failing_calls(target, [target.leader()], _RENAMES, "when=1+")


def _with_failing_calls(target: Target, brokers: Sequence[RunningBroker], calls: str, when: str) -> str:
    """The operator restarts the brokers afterwards."""
    with injected(brokers, calls, f"error=EIO:{when}") as struck:
        time.sleep(target.random.uniform(*ILL_S))
        injected_count = struck.count()
    time.sleep(target.random.uniform(*ILL_S))
    for broker in brokers:
        broker.kill()
    _start(brokers)
    return f"{injected_count} of {calls} of {_ids_of(brokers)} answered EIO"


def slow_sync_of_leader(target: Target) -> str:
    return _with_slow_syncs(target, [target.leader()])


def slow_sync_of_follower(target: Target) -> str:
    return _with_slow_syncs(target, [target.follower()])


def slow_sync_everywhere(target: Target) -> str:
    return _with_slow_syncs(target, list(target.cluster.brokers.values()))


def stuck_sync_of_leader(target: Target) -> str:
    return _with_stuck_syncs(target, target.leader())


def stuck_sync_of_follower(target: Target) -> str:
    return _with_stuck_syncs(target, target.follower())


def _with_stuck_syncs(target: Target, broker: RunningBroker) -> str:
    """The other replicas are in sync at the start, so they can take over."""
    target.cluster.wait_until_replicated()
    target.servability.postpone(STUCK_FLUSH_MS / 1000, *ALL)
    started_ns = now_ns()
    shown = _with_slow_syncs(target, [broker], STUCK_SYNC_MS, STUCK_S)
    silent_s = _silent_s(target, started_ns, now_ns())
    late = {index: round(each_s, 1) for index, each_s in silent_s.items() if each_s > _SERVED_WITHIN_S}
    if late:
        target.clients.problems.append(
            f"nothing was acknowledged for up to {max(late.values())} s while the disk of {_ids_of([broker])} was "
            f"stuck, {_SERVED_WITHIN_S:.0f} s allowed: {late}"
        )
    return f"{shown}; each partition silent for up to {max(silent_s.values()):.1f} s"


def _silent_s(target: Target, started_ns: int, ended_ns: int) -> dict[int, float]:
    """By partition, the longest time without an acknowledgement between these two."""
    times_ns: dict[int, list[int]] = {index: [started_ns, ended_ns] for index in range(target.clients.partitions_count)}
    for operation in target.clients.history():
        if is_acknowledged(operation) and started_ns < operation.completed_ns < ended_ns:
            times_ns[operation.partition].append(operation.completed_ns)
    return {
        index: max(later - earlier for earlier, later in pairwise(sorted(each))) / 1e9
        for index, each in times_ns.items()
    }


def _with_slow_syncs(
    target: Target,
    brokers: Sequence[RunningBroker],
    sync_ms: int = SLOW_SYNC_MS,
    lasts_s: tuple[float, float] = SLOW_S,
) -> str:
    """Nothing fails, no broker is restarted, and requests without a sync are answered."""
    pids = [broker.pid for broker in brokers]
    acknowledged_count = target.acknowledged_count()
    with injected(brokers, _SYNCS, f"delay_enter={sync_ms * 1000}") as struck:
        end_s = time.monotonic() + target.random.uniform(*lasts_s)
        answered_s = 0.0
        while time.monotonic() < end_s:
            answered_s = max(answered_s, *(_answer_s(broker) for broker in brokers))
            time.sleep(_ASK_EVERY_S)
        delayed_count = struck.count()
        acknowledged_count = target.acknowledged_count() - acknowledged_count
    for broker, pid in zip(brokers, pids, strict=True):
        if not broker.is_running or broker.pid != pid:
            target.clients.problems.append(f"broker {broker.node_id} ended when its disk was slow")
    if answered_s > ANSWERS_WITHIN_S:
        target.clients.problems.append(
            f"{_ids_of(brokers)} with a slow disk took {answered_s:.1f} s for what needs no sync"
        )
    shown = f"{delayed_count} syncs of {_ids_of(brokers)} took {sync_ms} ms longer"
    return f"{shown}; {acknowledged_count} records acknowledged, metadata answered within {answered_s:.1f} s meanwhile"


def _answer_s(broker: RunningBroker) -> float:
    """The time of a response that needs no sync."""
    asked_s = time.monotonic()
    with suppress(ClientError), Cluster(broker.bootstrap) as cluster:
        Admin(cluster).describe_cluster()
    return time.monotonic() - asked_s


def _ids_of(brokers: Sequence[RunningBroker]) -> str:
    return f"broker {', '.join(str(broker.node_id) for broker in brokers)}"


def corrupt_replica(target: Target) -> str:
    """Some bytes of one replica have changed when its broker starts.

    In the last segment, which is read whole after a kill.  In a closed one the next reader finds them.
    """
    broker = target.any_broker()
    with _down_while_others_lead(target, broker):
        path = _segments(target, broker)[-1]
        position = target.random.randrange(max(1, path.stat().st_size - _FLIPPED_BYTES))
        with path.open("r+b") as segment:
            segment.seek(position)
            before = segment.read(_FLIPPED_BYTES)
            segment.seek(position)
            segment.write(bytes(each ^ 0xFF for each in before))
    return f"{len(before)} bytes of {_named(path)} at {position} flipped on broker {broker.node_id}"


def truncate_replica(target: Target) -> str:
    """The end of a segment of one replica is missing when its broker starts."""
    broker = target.any_broker()
    with _down_while_others_lead(target, broker):
        path = target.random.choice(_segments(target, broker))
        before_bytes = path.stat().st_size
        left_bytes = target.random.randrange(before_bytes)
        with path.open("r+b") as segment:
            segment.truncate(left_bytes)
    return f"{_named(path)} of broker {broker.node_id} cut from {before_bytes} to {left_bytes} bytes"


def lose_disk(target: Target) -> str:
    """A broker comes back with another, empty disk, as after the replacement of a machine."""
    broker = target.any_broker()
    with _down_while_others_lead(target, broker):
        target.site.disks[broker.node_id or 0].replace()
    return f"the disk of broker {broker.node_id} was replaced by an empty one"


@contextmanager
def _down_while_others_lead(target: Target, broker: RunningBroker) -> Iterator[None]:
    """Kill it when all others have all records, and wait until they lead: a fault now hurts a minority only."""
    target.cluster.wait_until_replicated()
    broker.kill()

    def still_led() -> list[str]:
        return [
            f"{topic.name}-{each.partition}"
            for topic in target.cluster.topics()
            for each in topic.partitions.values()
            if _leads_or_is_alone(topic, each.partition, broker.node_id or 0)
        ]

    target.cluster.wait_for(f"leaders other than {broker.node_id}", still_led, lambda led: not led)
    yield
    broker.start()


def _leads_or_is_alone(topic: TopicInfo, partition: int, node_id: int) -> bool:
    each = topic.partitions[partition]
    return each.leader_id in (-1, node_id) or not set(each.in_sync_replicas) - {node_id}


def _segments(target: Target, broker: RunningBroker) -> list[Path]:
    """The non-empty segments of a random partition, in order."""
    index = target.random.randrange(PARTITIONS_COUNT)
    paths = sorted((broker.data_dir / f"{TOPIC}-{index}").glob(f"*{LOG_SUFFIX}"))
    return [path for path in paths if path.stat().st_size]


def _named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _start(brokers: Sequence[RunningBroker]) -> None:
    for broker in brokers:
        broker.launch()
    for broker in brokers:
        broker.wait_until_ready()


DISK_FAULTS: Final[Mapping[str, Fault]] = {
    "power-cut-leader": power_cut_leader,
    "power-cut-two": power_cut_two,
    "power-cut-all": power_cut_all,
    "disk-dies": disk_dies,
    "disk-full": disk_full,
    "sync-fails": sync_fails,
    "sync-fails-at-follower": sync_fails_at_follower,
    "sync-fails-everywhere": sync_fails_everywhere,
    "write-fails": write_fails,
    "write-fails-at-follower": write_fails_at_follower,
    "write-fails-everywhere": write_fails_everywhere,
    "rename-fails": rename_fails,
    "slow-sync-of-leader": slow_sync_of_leader,
    "slow-sync-of-follower": slow_sync_of_follower,
    "slow-sync-everywhere": slow_sync_everywhere,
    "stuck-sync-of-leader": stuck_sync_of_leader,
    "stuck-sync-of-follower": stuck_sync_of_follower,
    "corrupt-replica": corrupt_replica,
    "truncate-replica": truncate_replica,
    "lose-disk": lose_disk,
}
