"""What the project has promised: floors below which a run fails, and aims."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from bench.peers.names import APACHE_KAFKA, OTTLA_ACK, OTTLA_OS
from bench.scenarios import fresh_start
from bench.scenarios.scenario import MB_PER_S, RECORDS_PER_S, REQUESTS_PER_S, RSS_MB, STARTUP_S


class Verdict(Enum):
    PASS = "PASS"  # the aim is met
    FLOOR = "FLOOR"  # the floor is met, the aim is not
    BELOW = "BELOW"  # the floor is missed


@dataclass(frozen=True, slots=True)
class RatioTarget:
    """The peer's metric divided by Apache Kafka's in the same run: at least `floor`, hopefully `aim`."""

    metric: str
    floor: float
    aim: float

    def judge(self, ratio: float) -> Verdict:
        if ratio >= self.aim:
            return Verdict.PASS
        return Verdict.FLOOR if ratio >= self.floor else Verdict.BELOW


@dataclass(frozen=True, slots=True)
class Limit:
    """The peer's own metric: at most this."""

    metric: str
    most: float

    def judge(self, value: float) -> Verdict:
        return Verdict.PASS if value <= self.most else Verdict.BELOW


# Produce shape (records per batch, in flight) or fetch label -> target.  Over more than one partition the same ratios
# are shown but not judged: the promise is made for one.
RATIOS: Final[dict[tuple[str, str], RatioTarget]] = {
    ("produce-b1-f5-p1", OTTLA_OS): RatioTarget(REQUESTS_PER_S, floor=3, aim=5),
    ("produce-b50-f5-p1", OTTLA_OS): RatioTarget(RECORDS_PER_S, floor=2, aim=3),
    ("produce-b50-f20-p1", OTTLA_OS): RatioTarget(RECORDS_PER_S, floor=2, aim=3),
    ("produce-b4000-f5-p1", OTTLA_OS): RatioTarget(RECORDS_PER_S, floor=1, aim=1.2),
    ("fetch-64k", OTTLA_OS): RatioTarget(MB_PER_S, floor=0.9, aim=1),
    ("fetch-1m", OTTLA_OS): RatioTarget(MB_PER_S, floor=0.9, aim=1),
    # Every acknowledgement after a flush, against a peer that does not flush: one bound, no separate aim.
    ("produce-b1-f5-p1", OTTLA_ACK): RatioTarget(REQUESTS_PER_S, floor=0.75, aim=0.75),
    ("produce-b1-f100-p1", OTTLA_ACK): RatioTarget(REQUESTS_PER_S, floor=4, aim=4),
    ("produce-b50-f5-p1", OTTLA_ACK): RatioTarget(RECORDS_PER_S, floor=0.8, aim=0.8),
    ("produce-b50-f20-p1", OTTLA_ACK): RatioTarget(RECORDS_PER_S, floor=1.5, aim=1.5),
    ("produce-b4000-f5-p1", OTTLA_ACK): RatioTarget(RECORDS_PER_S, floor=1.1, aim=1.1),
}

LIMITS: Final[dict[tuple[str, str], tuple[Limit, ...]]] = {
    (fresh_start.NAME, peer): (Limit(STARTUP_S, 0.5), Limit(RSS_MB, 60)) for peer in (OTTLA_OS, OTTLA_ACK)
}

BASELINE: Final = APACHE_KAFKA
