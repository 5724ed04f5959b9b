"""./dev bench cluster: what the loss and the return of a broker cost, replicated throughput, many partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from bench.cluster.apache_kafka import start_kafka_cluster
from bench.cluster.losses import measure_kills, measure_pause, measure_return, measure_shutdowns
from bench.cluster.many_partitions import measure_many_partitions
from bench.cluster.ottla import start_ottla_cluster
from bench.cluster.peer import BROKERS, ClusterPeer, StartCluster
from bench.cluster.sizes import FULL, QUICK, Sizes
from bench.cluster.table import cluster_table
from bench.cluster.throughput import measure_throughput, warm_up
from bench.cluster.view import brokers_seen, wait_for
from bench.peers.names import APACHE_KAFKA, OTTLA_ACK, OTTLA_OS
from bench.study import Observed, Study, StudyOptions, say

CLUSTERS: Final[Mapping[str, StartCluster]] = {
    APACHE_KAFKA: start_kafka_cluster,
    OTTLA_OS: partial(start_ottla_cluster, "os"),
    OTTLA_ACK: partial(start_ottla_cluster, "ack"),
}
THROUGHPUT: Final = "throughput"
PARTITIONS: Final = "partitions"
# All but the many partitions happen to one cluster, in this order.
PARTS: Final[Mapping[str, Callable[[ClusterPeer, Sizes, Observed], None]]] = {
    THROUGHPUT: measure_throughput,
    "kill": measure_kills,
    "pause": measure_pause,
    "shutdown": measure_shutdowns,
    "return": measure_return,
    PARTITIONS: measure_many_partitions,
}
# A policy decides when a record is stable, which the throughput shows; all else is measured with the default, `ack`.
ONLY_THROUGHPUT: Final = (OTTLA_OS,)


class ClusterRun:
    """The clusters one after another, every second round in the other direction."""

    def __init__(self, options: StudyOptions, observed: Observed) -> None:
        self._options = options
        self._observed = observed
        self._sizes = QUICK if options.is_quick else FULL

    def run(self) -> None:
        names = [name for name in CLUSTERS if self._options.has_peer(name)]
        for round_index in range(self._options.rounds):
            for name in names if round_index % 2 == 0 else names[::-1]:
                chosen = [part for part in PARTS if self._has_part(name, part)]
                self._measure(name, [part for part in chosen if part != PARTITIONS])
                self._measure(name, [part for part in chosen if part == PARTITIONS])

    def _has_part(self, name: str, part: str) -> bool:
        return self._options.has_part(part) and (name not in ONLY_THROUGHPUT or part == THROUGHPUT)

    def _measure(self, name: str, parts: list[str]) -> None:
        """These parts with one fresh cluster."""
        if not parts:
            return
        say(f"{name}: a fresh cluster for {', '.join(parts)}")
        with self._observed.may_fail(name), CLUSTERS[name](self._options.work_dir) as cluster:
            wait_for("all brokers", lambda: brokers_seen(cluster) == BROKERS)
            if PARTITIONS not in parts:
                warm_up(cluster, self._sizes)
            for part in parts:
                with self._observed.may_fail(f"{name}, {part}"):
                    PARTS[part](cluster, self._sizes, self._observed)


STUDY: Final = Study(
    name="cluster",
    summary="three brokers: loss and return of one, replicated throughput, many partitions",
    parts=tuple(PARTS),
    peers=tuple(CLUSTERS),
    rounds=1,
    run=lambda options, observed: ClusterRun(options, observed).run(),
    table=cluster_table,
)
