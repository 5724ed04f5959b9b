"""The faults of a run, at times that the seed determines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.model.identifiers import TopicPartition
from tests.consumers_simulation.scale import SESSION_MS

if TYPE_CHECKING:
    from tests.consumers_simulation.consumer import SimulatedConsumer
    from tests.consumers_simulation.simulation import Simulation

PARTITIONS_MAX: Final = 9


class Faults:
    """Strikes until it is ended; then everything is repaired."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._chance = simulation.chance
        self._is_over = False
        kinds: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "join": self._join,
            "leave": self._leave,
            "pause": lambda: self._pause(SESSION_MS / 3),
            "long_pause": lambda: self._pause(2.5 * SESSION_MS),
            "break_link": lambda: self._any().link.break_off(),
            "cut_link": lambda: self._any().link.cut(self._chance.random() * 2.5 * SESSION_MS),
            "expire": self._expire,
            "tree_away": self._tree_away,
            "add_partitions": self._add_partitions,
            "reset_offset": self._reset_offset,
        }
        self._kinds = [kinds[kind] for kind in simulation.plan.fault_kinds]

    def begin(self) -> None:
        plan, tree = self._simulation.plan, self._simulation.tree
        self._simulation.lost_answers = plan.lost_answers
        tree.late_watch_ms = plan.late_watch_ms
        tree.lag_changes_max = plan.lag_changes_max
        self._next()

    def _next(self) -> None:
        if self._kinds:
            delay_ms = self._chance.expovariate(1 / self._simulation.plan.fault_interval_ms)
            self._simulation.timeline.after(delay_ms, self._strike)

    def _strike(self) -> None:
        if not self._is_over:
            if self._running():
                self._chance.choice(self._kinds)()
            self._next()

    def end(self) -> None:
        self._is_over = True
        self._simulation.lost_answers = 0.0
        self._simulation.tree.heal()
        for consumer in self._simulation.consumers:
            consumer.link.mend()
            if consumer.is_paused:
                consumer.resume()
        if not self._running():
            self._simulation.start_consumer()

    def _running(self) -> list[SimulatedConsumer]:
        return [each for each in self._simulation.consumers if each.is_up and not each.is_paused]

    def _any(self) -> SimulatedConsumer:
        return self._chance.choice(self._running())

    def _kill(self) -> None:
        self._any().kill()
        self._simulation.timeline.after(self._chance.random() * 2 * SESSION_MS, self._join)

    def _join(self) -> None:
        if len(self._running()) < self._simulation.plan.consumers_max:
            self._simulation.start_consumer()

    def _leave(self) -> None:
        self._any().leave()
        self._simulation.timeline.after(self._chance.random() * SESSION_MS, self._join)

    def _pause(self, longest_ms: float) -> None:
        consumer = self._any()
        consumer.pause()
        self._simulation.timeline.after(self._chance.random() * longest_ms, self._resume, consumer)

    def _resume(self, consumer: SimulatedConsumer) -> None:
        if consumer.is_paused:
            consumer.resume()

    def _expire(self) -> None:
        session_id = self._any().link.session_id
        if session_id:
            self._simulation.tree.close(session_id, is_early=True)

    def _tree_away(self) -> None:
        self._simulation.trace("tree: away")
        self._simulation.tree.is_away = True
        self._simulation.timeline.after(self._chance.random() * 1.5 * SESSION_MS, self._tree_back)

    def _tree_back(self) -> None:
        self._simulation.tree.is_away = False

    def _add_partitions(self) -> None:
        counts = self._simulation.tree.partitions_counts
        topic = self._chance.choice(sorted(counts))
        if counts[topic] < PARTITIONS_MAX:
            self._simulation.add_partitions(topic, counts[topic] + 1)

    def _partition(self) -> TopicPartition | None:
        partitions = sorted(self._simulation.tree.offsets)
        return self._chance.choice(partitions) if partitions else None

    def _reset_offset(self) -> None:
        """An operator resets the offsets of a running group."""
        partition = self._partition()
        if partition is not None:
            offset = self._simulation.tree.offsets[partition].offset
            self._simulation.trace("operator: %s is reset", partition)
            self._simulation.tree.reset_offset(partition, max(offset - self._chance.randrange(5), -1))
