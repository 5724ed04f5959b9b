"""A fetch of a client with a quota: an answer that would bring the client above it is sent without records."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Generic, Protocol, TypeVar

from ottla.broker.fetching.parked_fetches import FetchPlan
from ottla.broker.net.client_quotas import ClientQuotas
from ottla.broker.net.outbox import Piece
from ottla.broker.partitions.waiting_requests import WaitingFetch
from ottla.protocol.fetch import set_throttle_time


class Sized(Protocol):
    @property
    def readable_bytes(self) -> int: ...


Read = TypeVar("Read", bound=Sized)


class LimitedPlan(FetchPlan[Read], Protocol[Read]):
    """A plan that can be answered without its read."""

    def empty_response(self) -> Sequence[Piece]:
        """The response of a throttled client: no partitions.  The next request reads the same records."""
        ...


class LimitedFetch(Generic[Read]):
    """`FetchPlan` of a client with quotas."""

    __slots__ = ("_is_parked", "_plan", "_quotas", "_version")

    def __init__(self, plan: LimitedPlan[Read], quotas: ClientQuotas, version: int) -> None:
        self._plan = plan
        self._quotas = quotas
        self._version = version
        # Its time is not part of that of the request's routing any more.
        self._is_parked = False

    def read(self) -> Read:
        if not self._is_parked:
            return self._plan.read()
        began_s = perf_counter()
        read = self._plan.read()
        self._quotas.spent(perf_counter() - began_s)
        return read

    def is_enough(self, read: Read) -> bool:
        return self._plan.is_enough(read)

    def response(self, read: Read) -> Sequence[Piece]:
        may_send, throttle_ms = self._quotas.fetched(read.readable_bytes)
        pieces = self._plan.response(read) if may_send else self._plan.empty_response()
        return throttled(pieces, self._version, throttle_ms)

    def park(self, fetch: WaitingFetch) -> int:
        self._is_parked = True
        return self._plan.park(fetch)

    def stay_parked(self) -> None:
        self._plan.stay_parked()

    def unpark(self, fetch: WaitingFetch) -> None:
        self._plan.unpark(fetch)


def throttled(pieces: Sequence[Piece], version: int, throttle_ms: int) -> Sequence[Piece]:
    """The response, with the throttle time."""
    if throttle_ms:
        head = pieces[0]
        assert isinstance(head, bytearray), "a response starts with bytes"
        set_throttle_time(head, version, throttle_ms)
    return pieces
