"""Wall clocks that jump, and one that runs backwards.

Sessions, leases and the time-outs of groups are by the monotonic clock: when only clocks change, no session ends,
no leader changes, and no member of the group is given other partitions.

Retention is by the records' timestamps and the broker's wall clock, here as in Apache Kafka.  So records younger than
`retention.ms` by more than any clock is off must stay, older ones must be deleted, also after a clock has gone back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from ottla.client.admin.admin import Admin, CreatedTopic, NewTopic
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.storage.log_files import LOG_SUFFIX
from ottla.testing.broker import RunningBroker
from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.cluster.faults import SESSION_TIMEOUT_MS
from tests.cluster.target import Fault, Target
from tests.eventually import eventually

# The settings of brokers for these faults.
CLOCK_SETTINGS: Final[Mapping[str, str]] = {"log.retention.check.interval.ms": "500"}
HOUR_S: Final = 3600.0
BACK_S: Final = -120.0
_DRIFT_S: Final = 10.0
# So much that the clock really runs backwards.
_DRIFT_FACTOR: Final = -1.5
_DRIFT_EVERY_S: Final = 0.05
_ATTEMPTS: Final = 3
_WATCHED_S: Final = 2.5 * SESSION_TIMEOUT_MS / 1000
# The tolerance of a broker's timestamp around the shifted true time.
_STAMP_TOLERANCE_S: Final = 5.0
_RETENTION_S: Final = 2 * HOUR_S
# Beyond the retention, and within it, for every clock that is off by up to an hour.
_OLD_S: Final = _RETENTION_S + 1.5 * HOUR_S
_FRESH_S: Final = 0.0
# Two values do not fit a segment: each is in its own segment.
_VALUE: Final = bytes(10_000)
_SEGMENT_BYTES: Final = 16_384
_VALUES_COUNT: Final = 3
_WITHIN_S: Final = 60.0
_ASK_AGAIN_S: Final = 0.2
_OPTIONS: Final = ClientOptions(client_id="clocks", connect_timeout_ms=1_000, request_timeout_ms=5_000)


def clock_jumps_back(target: Target) -> str:
    return _with_clocks(target, [target.any_broker()], lambda broker: _jump(target, broker, BACK_S))


def clock_jumps_forward(target: Target) -> str:
    return _with_clocks(target, [target.any_broker()], lambda broker: _jump(target, broker, HOUR_S))


def clock_runs_back(target: Target) -> str:
    return _with_clocks(target, [target.any_broker()], lambda broker: _drift(target, broker))


def clocks_differ(target: Target) -> str:
    """All clocks jump at once, each by another amount."""
    brokers = list(target.cluster.brokers.values())
    shifts_s = dict(
        zip((each.node_id for each in brokers), target.random.sample([BACK_S, HOUR_S, 60.0], 3), strict=True)
    )
    return _with_clocks(target, brokers, lambda broker: _jump(target, broker, shifts_s[broker.node_id]))


def _jump(target: Target, broker: RunningBroker, shift_s: float) -> float:
    target.clocks.shift(broker.node_id or 0, shift_s)
    return shift_s


def _drift(target: Target, broker: RunningBroker) -> float:
    began_s = time.monotonic()
    while (passed_s := time.monotonic() - began_s) < _DRIFT_S:
        target.clocks.shift(broker.node_id or 0, _DRIFT_FACTOR * passed_s)
        time.sleep(_DRIFT_EVERY_S)
    return _jump(target, broker, _DRIFT_FACTOR * _DRIFT_S)


def _with_clocks(target: Target, brokers: list[RunningBroker], change: Callable[[RunningBroker], float]) -> str:
    """On a starved machine a session may end without a fault; one that a clock ends does so at each attempt."""
    for attempt in range(_ATTEMPTS):
        shifts_s, changes = _shift_for_a_while(target, brokers, change)
        if not changes:
            break
        if attempt == _ATTEMPTS - 1:
            target.clients.problems += changes
    return f"clocks were off by {shifts_s} s, as the brokers' stamps said; old records went, fresh ones stayed"


def _shift_for_a_while(
    target: Target, brokers: list[RunningBroker], change: Callable[[RunningBroker], float]
) -> tuple[dict[int, float], list[str]]:
    """The shifts, and the changes that must not happen."""
    target.cluster.wait_until_replicated()
    target.clients.wait_until_settled()
    before = _State(target)
    shifts_s = {}
    try:
        for broker in brokers:
            shifts_s[broker.node_id or 0] = change(broker)
        time.sleep(_WATCHED_S)
        when = f"when clocks were off by {shifts_s} s"
        changes = before.changes(when)
        for broker in brokers:
            _must_stamp(target, broker, shifts_s[broker.node_id or 0])
        _must_delete_what_is_old(target, when)
    finally:
        for broker in brokers:
            _jump(target, broker, 0.0)
    time.sleep(_WATCHED_S)
    when = f"after clocks that were off by {shifts_s} s were right again"
    changes += before.changes(when)
    for broker in brokers:
        _must_stamp(target, broker, 0.0)
    _must_delete_what_is_old(target, when)
    return shifts_s, changes


class _State:
    """State that changes only when sessions or time-outs end."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._epochs = self._look()
        self._given_count = target.clients.given_count()

    def _look(self) -> dict[str, int]:
        return {
            f"{topic.name}-{each.partition}": each.leader_epoch
            for topic in self._target.cluster.topics()
            for each in topic.partitions.values()
        }

    def changes(self, when: str) -> list[str]:
        now = self._look()
        changed = {name: (was, now.get(name)) for name, was in self._epochs.items() if now.get(name) != was}
        given_count = self._target.clients.given_count() - self._given_count
        changes = []
        if changed:
            changes.append(f"{when}, leader epochs changed: {changed}")
        if given_count:
            changes.append(f"{when}, the group gave {given_count} partitions again")
        return changes


def _must_stamp(target: Target, broker: RunningBroker, shift_s: float) -> None:
    """A topic with log append time shows the broker's clock."""
    name = _make_topic(target, {"message.timestamp.type": "LogAppendTime"}, leader_id=broker.node_id or 0)
    try:
        (stamp,) = _write(target, name, {0: time.time()})
        off_s = stamp - time.time()
        if abs(off_s - shift_s) > _STAMP_TOLERANCE_S:
            raise FaultWithoutEffect(f"broker {broker.node_id} is off by {off_s:.1f} s, not by {shift_s:.1f} s")
    finally:
        _delete_topic(target, name)


def _must_delete_what_is_old(target: Target, when: str) -> None:
    """Records of before the retention go from all replicas, fresh ones that follow them stay."""
    settings = {"retention.ms": str(round(_RETENTION_S * 1000)), "segment.bytes": str(_SEGMENT_BYTES)}
    name = _make_topic(target, settings)
    try:
        now_s = time.time()
        ages_s = [_OLD_S] * _VALUES_COUNT + [_FRESH_S] * _VALUES_COUNT
        _write(target, name, {number: now_s - age_s for number, age_s in enumerate(ages_s)})
        directories = [broker.data_dir / f"{name}-0" for broker in target.cluster.brokers.values()]
        try:
            eventually(lambda: [_first_offset(each) for each in directories], lambda seen: min(seen) >= _VALUES_COUNT)
        except AssertionError as late:
            target.clients.problems.append(f"{when}, retention did not delete what is old: {late}")
        # A few more runs of retention.
        time.sleep(4 * int(CLOCK_SETTINGS["log.retention.check.interval.ms"]) / 1000)
        first_offsets = [_first_offset(each) for each in directories]
        if max(first_offsets) > _VALUES_COUNT:
            target.clients.problems.append(
                f"{when}, retention deleted records of now: of {2 * _VALUES_COUNT}, {_VALUES_COUNT} of them old, "
                f"the replicas begin at {first_offsets}"
            )
    finally:
        _delete_topic(target, name)


def _first_offset(partition_directory: Path) -> int:
    """The base offset of the first segment; -1 while there is none."""
    return min((int(path.stem) for path in partition_directory.glob(f"*{LOG_SUFFIX}")), default=-1)


def _make_topic(target: Target, settings: Mapping[str, str], leader_id: int | None = None) -> str:
    """Of one partition, with a name that was never used."""
    node_ids = sorted(target.cluster.brokers)
    if leader_id is not None:
        node_ids = [leader_id, *(node_id for node_id in node_ids if node_id != leader_id)]
    made: list[str] = []

    def is_made() -> bool:
        # After a lost response the former name may be taken.
        name = f"clocks-{time.monotonic_ns()}"
        try:
            with Cluster(target.cluster.bootstrap, _OPTIONS) as client:
                new = NewTopic(name, assignments={0: node_ids}, configs=settings)
                (outcome,) = Admin(client).create_topics([new]).values()
        except ClientError:
            return False
        if not isinstance(outcome, CreatedTopic):
            if not outcome.is_retriable:
                raise outcome
            return False
        made.append(name)
        return True

    eventually(is_made, every_s=_ASK_AGAIN_S)
    target.cluster.wait_for_isr(made[0], 0)
    return made[0]


def _delete_topic(target: Target, name: str) -> None:
    # A topic that is left does no harm.
    with suppress(ClientError), Cluster(target.cluster.bootstrap, _OPTIONS) as client:
        Admin(client).delete_topics([name])


def _write(target: Target, topic: str, timestamps_s: Mapping[int, float]) -> list[float]:
    """One record after the other, each a batch; returns the timestamps that the broker assigned."""
    stamped: list[float] = []
    failures: list[KafkaError] = []

    def settled(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        stamped.append(message.timestamp()[1] / 1000)

    # Idempotent, since offsets are compared: a record that is sent again must not be stored twice.
    producer = Producer({"bootstrap.servers": target.cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for timestamp_s in timestamps_s.values():
        producer.produce(topic, _VALUE, partition=0, timestamp=round(timestamp_s * 1000), on_delivery=settled)
        left_count = producer.flush(_WITHIN_S)
        assert left_count + len(failures) == 0, f"{topic}: {failures}"
    return stamped


CLOCK_FAULTS: Final[Mapping[str, Fault]] = {
    "clock-jumps-back": clock_jumps_back,
    "clock-jumps-forward": clock_jumps_forward,
    "clock-runs-back": clock_runs_back,
    "clocks-differ": clocks_differ,
}
