"""Apache Kafka's JVM compiles what runs often: it is measured only when its rate has become steady."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from bench.peers.peer import Peer
from bench.raw_client.load import FetchLoad, ProduceLoad, put_load
from bench.scenarios.topics import create_topic, delete_topic

TOPIC: Final = "warm-up"
SLICE_S: Final = 2.0
STEADY_SLICES: Final = 3
STEADY_WITHIN: Final = 0.10
WARM_S_MAX: Final = 90
OTHER_SHAPES_S: Final = 4.0


def is_steady(rates: list[float]) -> bool:
    """The last three slices differ by at most a tenth."""
    last = rates[-STEADY_SLICES:]
    return len(last) == STEADY_SLICES and max(last) - min(last) <= STEADY_WITHIN * max(last)


def warm_up(peer: Peer, least_s: float, say: Callable[[str], None]) -> list[float]:
    """Small batches for at least `least_s` and until the rate is steady, then the other shapes.

    Gives the rate (requests/s) of each slice.
    """
    create_topic(peer, TOPIC, 1)
    rates: list[float] = []
    started = time.monotonic()
    while (elapsed_s := time.monotonic() - started) < WARM_S_MAX:
        if elapsed_s >= least_s and is_steady(rates):
            break
        small = ProduceLoad(batch_records=1, in_flight=5, seconds=SLICE_S, warmup_s=0)
        rates.append(put_load(small, peer.port, TOPIC).requests_per_s)
    steadiness = "steady" if is_steady(rates) else "NOT steady, the machine is busy"
    say(f"{peer.name} warm after {elapsed_s:.0f} s ({steadiness}): " + " ".join(f"{rate:,.0f}" for rate in rates))
    for batch_records, in_flight in ((1, 100), (50, 20), (4000, 5)):
        load = ProduceLoad(batch_records, in_flight, seconds=OTHER_SHAPES_S, warmup_s=0)
        put_load(load, peer.port, TOPIC)
    for partition_bytes_max in (64 << 10, 1 << 20):
        put_load(FetchLoad(partition_bytes_max, seconds=OTHER_SHAPES_S, warmup_s=0), peer.port, TOPIC)
    delete_topic(peer, TOPIC)
    return rates
