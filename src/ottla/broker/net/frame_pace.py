"""Whether a peer sends its frame, or takes its answer, fast enough.  Pure: time is the number of the sweep.

Sweeps are counted, not milliseconds: a process that was stopped finds the bytes of that time in its sockets, and blames
no peer.
"""

from __future__ import annotations

from typing import NamedTuple


class UnfinishedFrame(NamedTuple):
    """A frame of which the peer owes the rest."""

    # Where it begins in all that the peer has sent: no two frames of a connection begin at one place.
    begun_at: int
    received_bytes: int
    # Whether it holds memory that others may wait for.
    holds_budget: bool


class UnreadAnswer(NamedTuple):
    """A large answer of which the peer has not taken all."""

    # No two answers have the same.
    number: int
    taken_bytes: int


class PaceRules(NamedTuple):
    """So many bytes, or the rest of the frame, must come within so many sweeps."""

    bytes_per_sweep: int
    window_sweeps: int
    # While others wait for memory.
    contended_window_sweeps: int


class _Window:
    """Starts again when its share of bytes has come: bytes that came faster count for nothing later."""

    __slots__ = ("_began_at", "_began_bytes", "_bytes_min", "_length_sweeps")

    def __init__(self, sweep: int, received_bytes: int, length_sweeps: int, bytes_per_sweep: int) -> None:
        self._length_sweeps = length_sweeps
        # Some byte in each window, if no rate is configured.
        self._bytes_min = max(bytes_per_sweep * length_sweeps, 1)
        self._began_at, self._began_bytes = sweep, received_bytes

    def is_missed(self, sweep: int, received_bytes: int) -> bool:
        if received_bytes - self._began_bytes >= self._bytes_min:
            self._began_at, self._began_bytes = sweep, received_bytes
        return sweep - self._began_at >= self._length_sweeps


class FramePace:
    """One connection's frame, as the sweeps see it."""

    __slots__ = ("_begun_at", "_contended", "_window")

    def __init__(self, rules: PaceRules, sweep: int, frame: UnfinishedFrame) -> None:
        self._begun_at = frame.begun_at
        received, rate = frame.received_bytes, rules.bytes_per_sweep
        self._window = _Window(sweep, received, rules.window_sweeps, rate)
        self._contended = _Window(sweep, received, rules.contended_window_sweeps, rate)

    def is_of(self, frame: UnfinishedFrame) -> bool:
        return frame.begun_at == self._begun_at

    def is_too_slow(self, sweep: int, frame: UnfinishedFrame, *, is_contended: bool) -> bool:
        """`is_contended`: others wait for memory."""
        is_missed = self._window.is_missed(sweep, frame.received_bytes)
        is_in_the_way = self._contended.is_missed(sweep, frame.received_bytes) and is_contended and frame.holds_budget
        return is_missed or is_in_the_way


class AnswerPace:
    """The large answer that one connection's peer takes, as the sweeps see it while others wait for its memory."""

    __slots__ = ("_number", "_window")

    def __init__(self, rules: PaceRules, sweep: int, answer: UnreadAnswer) -> None:
        self._number = answer.number
        self._window = _Window(sweep, answer.taken_bytes, rules.contended_window_sweeps, rules.bytes_per_sweep)

    def is_of(self, answer: UnreadAnswer) -> bool:
        return answer.number == self._number

    def is_too_slow(self, sweep: int, answer: UnreadAnswer) -> bool:
        return self._window.is_missed(sweep, answer.taken_bytes)
