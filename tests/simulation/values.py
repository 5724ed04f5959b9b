"""The values of producers: each is written by one producer, and must be in the log once."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.simulated_log import SimulatedLog


class Value(NamedTuple):
    """A batch of an idempotent producer in one of its sessions, or the only batch of one that is not idempotent."""

    producer_id: int
    session: int
    sequence: int


class PartitionLog(SimulatedLog[Value]):
    """A log that remembers the last batch of each producer's session, as a broker does, also after retention."""

    def __init__(self, *, is_stable_at_once: bool = False) -> None:
        super().__init__(is_stable_at_once=is_stable_at_once)
        # (producer, session): the last sequence that retention deleted, and its offset.
        self._deleted: dict[tuple[int, int], tuple[int, int]] = {}

    def delete_records_before(self, offset: int) -> None:
        start_offset = self.log_start_offset
        for position, value in enumerate(self.records[: max(0, offset - start_offset)]):
            self._deleted[value.producer_id, value.session] = (value.sequence, start_offset + position)
        super().delete_records_before(offset)

    def reset_to(self, offset: int) -> None:
        self._deleted.clear()
        super().reset_to(offset)

    def offset_of(self, value: Value) -> int | None:
        """Where the log has a value, if it has it."""
        records = self.records
        for position in range(len(records) - 1, -1, -1):
            if records[position] == value:
                return self.log_start_offset + position
        sequence, offset = self._deleted.get((value.producer_id, value.session), (-1, -1))
        return offset if sequence == value.sequence else None

    def accepts(self, value: Value) -> bool:
        """Whether the value is the next one of its producer's session, as far as this log can know."""
        for former in reversed(self.records):
            if former.producer_id == value.producer_id and former.session == value.session:
                return former.sequence == value.sequence - 1
        deleted = self._deleted.get((value.producer_id, value.session))
        if deleted is not None:
            return deleted[0] == value.sequence - 1
        # Earlier values may have been deleted before this log started.
        return value.sequence == 0 or self.log_start_offset > 0
