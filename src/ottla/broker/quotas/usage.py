"""What clients have used of their quotas: a bounded number of rates and buckets.

One that was idle for the time of its window is as a new one, and is dropped.  When all are busy, what is added beside
them shares one rate for each quota: a client that sends a new client id with each request has no more than one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from ottla.broker.quotas.quota_limits import Limit
from ottla.broker.quotas.rate import TokenBucket, Window, WindowedRate
from ottla.model.quotas import QuotaEntity, QuotaKind

# Of each of the two forms.  Each takes about 1.5 KB.
SHARERS_MAX: Final = 10_000
# More than one, so that what is idle becomes less.
_LOOKED_AT: Final = 4


class QuotaRate(NamedTuple):
    """What one sharer of a quota uses now, each second."""

    kind: QuotaKind
    sharer: QuotaEntity
    rate: float


class QuotaUsage:
    """Records amounts; the caller gives the limits and the time."""

    def __init__(self, window: Window, mutations_window: Window, sharers_max: int = SHARERS_MAX) -> None:
        self._window: Final = window
        self._rates: Final = _Recent(lambda now_ms: WindowedRate(window, now_ms), sharers_max)
        self._buckets: Final = _Recent(lambda now_ms: TokenBucket(mutations_window, now_ms), sharers_max)

    @property
    def sharers_count(self) -> int:
        return len(self._rates.by_key) + len(self._buckets.by_key)

    def allowed_in_window(self, limit: Limit) -> float:
        """The largest amount that is not above the limit when it is the only one."""
        return limit.value * self._window.full_ms / 1_000

    def record(self, limit: Limit, amount: float, now_ms: int) -> int:
        """How long the client is throttled after this amount, in milliseconds."""
        rate = self._rates.of(limit, now_ms)
        rate.record(amount, now_ms)
        return rate.throttle_ms(limit.value, now_ms)

    def record_unless_above(self, limit: Limit, amount: float, now_ms: int) -> tuple[bool, int]:
        """Whether the amount was recorded, and how long the client is throttled.

        An amount that brings the rate above the limit is not, unless it is the only one of the window: else no record
        batch could ever be sent that is larger than what the limit allows in a window.
        """
        rate = self._rates.of(limit, now_ms)
        is_only = rate.per_second(now_ms) <= 0
        rate.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(limit.value, now_ms)
        if not throttle_ms or is_only:
            return True, throttle_ms
        rate.record(-amount, now_ms)
        return False, throttle_ms

    def throttle_ms(self, limit: Limit, now_ms: int) -> int:
        """How long the client is throttled for what it has used so far."""
        return self._rates.of(limit, now_ms).throttle_ms(limit.value, now_ms)

    def record_mutations(self, limit: Limit, count: int, now_ms: int) -> int:
        """The same for changes of topics, which may come in bursts."""
        bucket = self._buckets.of(limit, now_ms)
        bucket.record(count, limit.value, now_ms)
        return bucket.throttle_ms(limit.value, now_ms)

    def mutations_throttle_ms(self, limit: Limit, now_ms: int) -> int:
        return self._buckets.of(limit, now_ms).throttle_ms(limit.value, now_ms)

    def rates(self, now_ms: int, count_max: int) -> Iterator[QuotaRate]:
        """Of those that were used last."""
        for number, ((kind, sharer, is_of_many), rate) in enumerate(reversed(self._rates.by_key.items())):
            if number == count_max:
                return
            if not is_of_many:
                yield QuotaRate(kind, sharer, rate.per_second(now_ms))


class _Meter(Protocol):
    def is_idle(self, now_ms: int) -> bool: ...


_M = TypeVar("_M", bound=_Meter)
# The kind and the sharer; or the owner of the quota, for all sharers that have no separate meter.
_Key = tuple[QuotaKind, QuotaEntity, bool]


class _Recent(Generic[_M]):
    """The meters of the sharers that are busy."""

    def __init__(self, make: Callable[[int], _M], sharers_max: int) -> None:
        self._make: Final = make
        self._sharers_max: Final = sharers_max
        # Those of the latest use last.
        self.by_key: Final[OrderedDict[_Key, _M]] = OrderedDict()

    def of(self, limit: Limit, now_ms: int) -> _M:
        by_key = self.by_key
        key: _Key = (limit.kind, limit.sharer, False)
        meter = by_key.get(key)
        if meter is None:
            self._drop_idle(now_ms)
            if len(by_key) >= self._sharers_max:
                key = (limit.kind, limit.owner, True)
                meter = by_key.get(key)
            if meter is None:
                meter = by_key[key] = self._make(now_ms)
        by_key.move_to_end(key)
        return meter

    def _drop_idle(self, now_ms: int) -> None:
        for _ in range(min(_LOOKED_AT, len(self.by_key))):
            key, meter = self.by_key.popitem(last=False)
            if not meter.is_idle(now_ms):
                # It is looked at again after all others.
                self.by_key[key] = meter
