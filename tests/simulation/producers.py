"""Producers: they send one value after the other, retry, and remember only their responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.network import CLIENTS
from tests.simulation.partition import ACKNOWLEDGED, OUT_OF_ORDER, Send, SimulatedPartition
from tests.simulation.scale import PRODUCE_TIMEOUT_MS
from tests.simulation.values import Value

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Producer:
    """One producer of one partition.

    An idempotent one retries a value until it is acknowledged.  Others try each value once.
    """

    def __init__(self, simulation: Simulation, producer_id: int, index: int, acks: int, *, is_idempotent: bool) -> None:
        self._simulation = simulation
        self.index = index
        self._acks = acks
        self._is_idempotent = is_idempotent
        self.value = Value(producer_id, 0, 0)
        self._attempt = 0
        self._leader = 0
        self.is_stopped = False
        self.is_idle = False
        self.acknowledged_count = 0

    def send(self) -> None:
        """Send the present value to the leader in its metadata."""
        simulation = self._simulation
        self._attempt += 1
        chance = simulation.chance
        if not self._leader or chance.random() < 0.02:
            node = simulation.tree.now.partitions[self.index]
            self._leader = node.state.leader if chance.random() < 0.7 else chance.choice(node.replicas)
        if self._leader > 0:
            broker = simulation.broker(self._leader)
            send = Send(self._attempt, self.value, self._acks, self._is_idempotent, self._on_answer)
            simulation.network.send(
                CLIENTS, broker.node_id, broker.deliver, broker.life, SimulatedPartition.produce, self.index, send
            )
        simulation.timeline.after(PRODUCE_TIMEOUT_MS + 200, self._on_timeout, self._attempt)

    def _on_timeout(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._leader = 0
            self._continue()

    def _on_answer(self, attempt: int, answer: str, offset: int) -> None:
        if attempt != self._attempt:
            return
        if answer == ACKNOWLEDGED:
            self.acknowledged_count += 1
            self._next(self.value._replace(sequence=self.value.sequence + 1))
            return
        self._leader = 0
        if answer == OUT_OF_ORDER and self._simulation.plan.allows_unclean:
            # The values of its former session are lost.
            self._next(Value(self.value.producer_id, self.value.session + 1, 0))
            return
        self._continue()

    def _continue(self) -> None:
        """The same value again, or the next: only idempotent producers retry a value that may be in the log."""
        if self._is_idempotent:
            self._later()
        else:
            self._next(self.value._replace(sequence=self.value.sequence + 1))

    def _next(self, value: Value) -> None:
        self.value = value
        self._attempt += 1
        if self.is_stopped:
            self.is_idle = True
        else:
            self._later()

    def _later(self) -> None:
        self._simulation.timeline.after(
            self._simulation.plan.pause_between_sends_ms * 2 * self._simulation.chance.random(), self.send
        )
