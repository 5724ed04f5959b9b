"""Writes changes of partition states to the tree: those of one turn of the loop together.

While a batch is under way, further changes wait and form the next one.  A change whose outcome is unknown is decided
by reading: it was applied, or another one was, or the node still has the expected version; then it is written again
over the same version, so that at most one of the two attempts takes effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.broker.tree.registrar import TreeSession
from ottla.coordination.state_changes import StateChange
from ottla.model.errors import OttlaError
from ottla.model.partition_state import NO_STATE_VERSION, ChangeOutcome, ChangeResult
from ottla.observe.events import fields
from ottla.runtime.loop_offload import TaskStarter

log = logging.getLogger(__name__)

RETRY_AFTER_S: Final = 0.2

OnOutcome = Callable[[ChangeOutcome], None]
Propose = Callable[[StateChange, OnOutcome], None]
"""`StateWriter.propose`."""

_UNKNOWN: Final = ChangeOutcome(ChangeResult.UNKNOWN, NO_STATE_VERSION)


class States(Protocol):
    """The part of the topic registry that this module uses."""

    async def change_states(self, changes: Sequence[StateChange]) -> list[ChangeOutcome]: ...

    async def resolve_states(self, changes: Sequence[StateChange]) -> list[ChangeOutcome]: ...


class _Proposal(NamedTuple):
    change: StateChange
    on_outcome: OnOutcome


class StateWriter:
    """`wait` is `asyncio.sleep`."""

    def __init__(
        self, states: States, session: TreeSession, loop: TaskStarter, wait: Callable[[float], Awaitable[object]]
    ) -> None:
        self._states = states
        self._session = session
        self._loop = loop
        self._wait = wait
        self._proposals: list[_Proposal] = []
        self._writing: asyncio.Task[None] | None = None
        self._is_stopped = False

    def propose(self, change: StateChange, on_outcome: OnOutcome) -> None:
        """Write the change soon; `on_outcome` is called once, on the event loop.

        The outcome stays unknown only if the session ended or the writer stopped before it was decided.
        """
        self._proposals.append(_Proposal(change, on_outcome))
        if self._writing is None and not self._is_stopped:
            # Its first step runs after this turn of the loop: what is proposed until then joins the batch.
            self._writing = self._loop.create_task(self._write_all(), name="state-writer")

    async def stop(self) -> None:
        """Begin no further batch; returns when none is under way."""
        self._is_stopped = True
        if self._writing is not None:
            await self._writing

    async def _write_all(self) -> None:
        try:
            while self._proposals and not self._is_stopped:
                batch, self._proposals = self._proposals, []
                try:
                    await self._write(batch)
                except Exception:
                    # What was proposed meanwhile is written all the same.
                    log.exception("state_writer.bug")
        finally:
            self._writing = None

    async def _write(self, batch: list[_Proposal]) -> None:
        session_id = self._session.session_id
        attempt = self._states.change_states
        undecided = batch
        try:
            while True:
                try:
                    outcomes = await attempt([proposal.change for proposal in undecided])
                except OttlaError as error:
                    log.warning("state_writer.failed", extra=fields(states_count=len(undecided), error=str(error)))
                else:
                    undecided = _decide(undecided, outcomes)
                    if attempt == self._states.resolve_states and undecided:
                        attempt = self._states.change_states
                        continue
                if not undecided or self._is_stopped or self._session.session_id != session_id:
                    return
                attempt = self._states.resolve_states
                await self._wait(RETRY_AFTER_S)
        finally:
            for proposal in undecided:
                _tell(proposal, _UNKNOWN)


def _decide(proposals: Sequence[_Proposal], outcomes: Sequence[ChangeOutcome]) -> list[_Proposal]:
    """Report the outcomes that are known; returns the others' proposals."""
    undecided: list[_Proposal] = []
    for proposal, outcome in zip(proposals, outcomes, strict=True):
        if outcome.result is ChangeResult.UNKNOWN:
            undecided.append(proposal)
        else:
            _tell(proposal, outcome)
    return undecided


def _tell(proposal: _Proposal, outcome: ChangeOutcome) -> None:
    try:
        proposal.on_outcome(outcome)
    except Exception:
        # Of one partition: the others hear of theirs, once, all the same.
        log.exception("state_writer.bug")
