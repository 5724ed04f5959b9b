"""The transaction of one claim, which several replays may want to complete: the later one fences the others.

A replay that is fenced lets the other one finish.  If it took the id back at once the two would fence each other
without end, and neither transaction would be committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.client.producing.errors import ProducerFenced
from ottla.client.wire.retrying import Retrying
from ottla.model.errors import OttlaError

# So long the transaction of a claim may be open.
TRANSACTION_TIMEOUT_MS: Final = 60_000
# Below it, with time for the commit: a batch without an answer ends its attempt as a time-out.  If the coordinator
# aborted the transaction before, that would look as if another replay had the id.
DELIVERY_TIMEOUT_MS: Final = 25_000
# The second and third: the replay that had the id meanwhile was killed.
ATTEMPTS_MAX: Final = 3


def delivered(
    attempt: Callable[[], OttlaError | None], is_completed: Callable[[], bool], retrying: Retrying
) -> OttlaError | None:
    """What an `attempt` returns, None when another replay has completed the claim.

    `is_completed` reads the claims; what it raises ends this.  An attempt that is fenced is repeated when the other
    replay did not complete the claim while its transaction could be open.  Raises ProducerFenced after the last one.
    """
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return attempt()
        except ProducerFenced as error:
            if _is_completed_in_time(is_completed, retrying, error):
                return None
    return attempt()


def _is_completed_in_time(is_completed: Callable[[], bool], retrying: Retrying, reason: ProducerFenced) -> bool:
    deadline, backoff = retrying.deadline(TRANSACTION_TIMEOUT_MS), retrying.backoff()
    while not is_completed():
        if deadline.has_passed:
            return False
        retrying.on_wait(reason)
        retrying.sleep_ms(min(backoff.next_ms(), deadline.remaining_ms))
    return True
