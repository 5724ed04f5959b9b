"""A process's connection to the tree, over successive sessions.

Requests of one connection are applied in order.  When it breaks, those under way have an unknown outcome: some
are applied late, but never after the session is connected again.  Requests without a connection are sent with
the next one; those of an expired session only if they are bound to none.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.consumers_simulation.scale import LATENCY_MS, LEASE_MS, PING_MS

if TYPE_CHECKING:
    from tests.consumers_simulation.consumer import SimulatedConsumer
    from tests.consumers_simulation.simulation import Simulation

NO_SESSION = 0


class Request:
    """The tree runs `work` for a session; one of `replied` and `failed` is called after it, or neither."""

    __slots__ = ("attempt", "connection", "failed", "has_arrived", "replied", "session_id", "work")

    def __init__(
        self,
        session_id: int | None,
        work: Callable[[int], Any],
        replied: Callable[[Any], None],
        failed: Callable[[], None],
    ) -> None:
        # The session that it is bound to, or None.
        self.session_id = session_id
        self.work = work
        self.replied = replied
        self.failed = failed
        self.has_arrived = False
        self.attempt = 0
        self.connection = 0


class Link:
    """The process's side of the tree: a connection or none, a session or none."""

    def __init__(self, simulation: Simulation, process: SimulatedConsumer, chance: random.Random) -> None:
        self._simulation = simulation
        self._process = process
        self._chance = chance
        self._connection = 0
        self._is_connected = False
        # Before that time it cannot connect.
        self._cut_until_ms = 0.0
        self._arrives_at_ms = 0.0
        self._answers_at_ms = 0.0
        self._under_way: list[Request] = []
        self._waiting: list[Request] = []
        self.session_id = NO_SESSION

    def start(self) -> None:
        self._later(self._latency(), self._connect, self._connection)
        self._later(PING_MS, self._ping)

    def _later(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None:
        """Runs in the process: not while it is paused."""
        self._process.later(delay_ms, call, *arguments)

    def _latency(self) -> float:
        return LATENCY_MS * (0.1 + 2 * self._chance.random())

    def ask(
        self,
        work: Callable[[int], Any],
        replied: Callable[[Any], None],
        failed: Callable[[], None],
        *,
        is_bound: bool = True,
    ) -> None:
        request = Request(self.session_id if is_bound else None, work, replied, failed)
        if self._is_connected:
            self._send(request)
        else:
            self._waiting.append(request)

    def _send(self, request: Request) -> None:
        now = self._simulation.timeline.now
        request.connection = self._connection
        self._under_way.append(request)
        self._arrives_at_ms = max(now + self._latency(), self._arrives_at_ms)
        self._arrive_at(self._arrives_at_ms - now, request)

    def _arrive_at(self, delay_ms: float, request: Request) -> None:
        request.attempt += 1
        self._simulation.timeline.after(delay_ms, self._arrive, request, request.attempt, self.session_id)

    def _arrive(self, request: Request, attempt: int, session_id: int) -> None:
        """Runs at the tree."""
        if attempt != request.attempt or request.has_arrived:
            return
        tree, connection = self._simulation.tree, request.connection
        if tree.is_away:
            self._process.run(self.break_off, connection)
            return
        request.has_arrived = True
        if not tree.hear(session_id):
            self._process.run(self._on_expired, connection)
            return
        answer = request.work(session_id)
        if self._chance.random() < self._simulation.lost_answers:
            self._process.run(self.break_off, connection)
            return
        now = self._simulation.timeline.now
        self._answers_at_ms = max(now + self._latency(), self._answers_at_ms)
        self._later(self._answers_at_ms - now, self._answer, request, answer)

    def _answer(self, request: Request, answer: Any) -> None:
        if request.connection == self._connection:
            self._under_way.remove(request)
            request.replied(answer)

    def _ping(self) -> None:
        self._later(PING_MS, self._ping)
        if self._is_connected:
            sent_ms = self._process.now_ms()
            self.ask(lambda session_id: None, lambda answer: self._on_pong(sent_ms), lambda: None)

    def _on_pong(self, sent_ms: float) -> None:
        self._process.consumer.on_lease(self.lease_until_ms(sent_ms))

    def lease_until_ms(self, sent_ms: float) -> int:
        """By the clock of the process."""
        return int(sent_ms) + LEASE_MS

    def cut(self, duration_ms: float) -> None:
        self._cut_until_ms = self._simulation.timeline.now + duration_ms
        self.break_off(self._connection)

    def mend(self) -> None:
        self._cut_until_ms = 0.0

    def break_off(self, connection: int | None = None) -> None:
        if not self._is_connected or connection not in (None, self._connection):
            return
        self._connection += 1
        self._is_connected = False
        reconnect_ms = 20 + self._chance.random() * 100
        failed, self._under_way = self._under_way, []
        lost_from = self._chance.randrange(len(failed) + 1)
        # The first request may arrive late, those sent after it never arrive.
        late_ms = 0.0
        for position, request in enumerate(failed):
            request.attempt += 1
            if position < lost_from and not request.has_arrived:
                late_ms += self._chance.random() * (reconnect_ms - 10 - late_ms)
                self._arrive_at(late_ms, request)
        session = self._simulation.tree.sessions.get(self.session_id)
        if session is not None:
            # Its watches are lost with the connection.
            session.on_watch = None
        self._later(reconnect_ms, self._connect, self._connection)
        for request in failed:
            request.failed()

    def _connect(self, connection: int) -> None:
        tree, now = self._simulation.tree, self._simulation.timeline.now
        if connection != self._connection or self._is_connected:
            return
        if tree.is_away or now < self._cut_until_ms:
            self._later(30, self._connect, connection)
            return
        if self.session_id != NO_SESSION and not tree.hear(self.session_id):
            self._on_expired(connection)
            return
        self._is_connected = True
        self._arrives_at_ms = self._answers_at_ms = now
        if self.session_id == NO_SESSION:
            self.session_id = tree.connect()
            self._process.on_session(self.session_id, self.lease_until_ms(self._process.now_ms()))
        else:
            self._process.on_reconnected()
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            if request.session_id in (None, self.session_id):
                self._send(request)

    def _on_expired(self, connection: int) -> None:
        if connection != self._connection:
            return
        self._connection += 1
        self._is_connected = False
        self._under_way.clear()
        self.session_id = NO_SESSION
        self._process.on_session_lost()
        self._later(10 + self._chance.random() * 50, self._connect, self._connection)

    def close(self) -> None:
        """The process closes the session."""
        if self.session_id != NO_SESSION and self._is_connected and not self._simulation.tree.is_away:
            self._simulation.tree.close(self.session_id)
