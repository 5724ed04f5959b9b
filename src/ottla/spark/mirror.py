"""A mirror whose records are copied by Spark's tasks: many partitions, on many machines.

    import ottla.spark
    from ottla.mirror import MirrorOptions, Names
    from ottla.spark.mirror import SparkMirror

    spark = ottla.spark.session("mirror")
    mirror = SparkMirror(spark, "live:9092", "offline:9092", MirrorOptions(topics=Names(("page-.*",))))
    report = mirror.run()                     # what the source has now
    mirror.follow(every_s=60)                 # and what comes

The driver plans and holds the fence; tasks copy ranges, each with its own clients.  See `ottla.mirror` for what is
copied and what is guaranteed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ottla.runtime.installed import naming_what_to_install

with naming_what_to_install():
    from pyspark.sql import SparkSession

from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.settings import ClientSecurity
from ottla.mirror import Mirror, MirrorOptions, MirrorReport, PartitionStatus
from ottla.mirror.copy_ranges import CopyRange, copy_ranges
from ottla.mirror.mirrored_cluster import client_of_side
from ottla.model.errors import ConfigError, OttlaError


class MirrorTaskFailed(OttlaError):
    hint = "what was copied stays; run the mirror again to continue where it stopped"


class SparkMirror:
    """Copies by ranges: each run copies the records that the source has when it starts.  Nothing of it is on the
    driver's disk.

    A task that is run again, on another machine too, finds out what the one before has copied.  `rate_bytes_s` is
    shared out among the tasks that run at a time.  The security of each side is that of `Mirror`; each task reads its
    files on the machine where it runs.  `note` gets lines for people.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: str,
        target: str,
        options: MirrorOptions | None = None,
        *,
        source_client: ClientOptions | None = None,
        target_client: ClientOptions | None = None,
        source_security: ClientSecurity | Mapping[str, object] | None = None,
        target_security: ClientSecurity | Mapping[str, object] | None = None,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._spark = spark
        self._addresses = (source, target)
        self._options = options or MirrorOptions()
        if self._options.is_transactional:
            raise ConfigError(
                "is_transactional is for a mirror of one process: tasks would take its transactional id over",
                hint="leave it out, or run `ottla mirror run --transactional`",
            )
        self._clients = (
            client_of_side(source_client, source_security),
            client_of_side(target_client, target_security),
        )
        self._note = note
        self._mirror = Mirror(
            source, target, self._options, source_client=self._clients[0], target_client=self._clients[1], note=note
        )

    def run(self) -> MirrorReport | None:
        """Copy what the source has now; None: another mirror of this source is at work.

        Raises ClientError where a cluster cannot be reached, MirrorTaskFailed, ConfigError where Spark may run a task
        twice at a time.
        """
        if self._spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
            raise ConfigError(
                "spark.speculation is true: a second run of a task beside the first copies its records twice",
                hint="set spark.speculation=false for the mirror's application",
            )
        return self._mirror.run_with(self._copy)

    def follow(
        self, every_s: float, stop: threading.Event | None = None, on_run: Callable[[MirrorReport], None] | None = None
    ) -> None:
        """Run again and again, `every_s` from the end of one to the start of the next, until `stop` is set.

        A run that fails is reported by `note`, and tried again.  Raises ConfigError: that would not help.
        """
        stop = stop or threading.Event()
        while not stop.is_set():
            try:
                report = self.run()
                if report is not None and on_run is not None:
                    on_run(report)
            except ConfigError:
                raise
            except OttlaError as error:
                self._note(str(error))
            stop.wait(every_s)

    def _copy(self, works: Sequence[CopyRange]) -> list[PartitionStatus]:
        context = self._spark.sparkContext
        shares = _shares(works, context.defaultParallelism)
        options = self._options
        if options.rate_bytes_s is not None:
            options = replace(options, rate_bytes_s=max(1, options.rate_bytes_s // len(shares)))
        task = partial(_run_share, *self._addresses, options, self._clients)
        try:
            reports: list[_TaskReport] = context.parallelize(shares, len(shares)).mapPartitions(task).collect()
        except Exception as error:
            raise MirrorTaskFailed(f"a task of the mirror failed: {error}") from error
        for line in (line for report in reports for line in report.notes):
            self._note(line)
        return [status for report in reports for status in report.statuses]


class _TaskReport(NamedTuple):
    statuses: list[PartitionStatus]
    notes: list[str]


def _shares(works: Sequence[CopyRange], count: int) -> list[list[CopyRange]]:
    """The largest ranges first, each to the share that has the least."""
    shares: list[tuple[int, list[CopyRange]]] = [(0, []) for _ in range(max(1, min(count, len(works))))]
    for work in sorted(works, key=lambda work: work.begin - work.end):
        at = min(range(len(shares)), key=lambda index: shares[index][0])
        size, taken = shares[at]
        shares[at] = (size + work.end - work.begin, [*taken, work])
    return [taken for _, taken in shares]


def _run_share(
    source: str,
    target: str,
    options: MirrorOptions,
    clients: tuple[ClientOptions, ClientOptions],
    shares: Iterable[list[CopyRange]],
) -> Iterator[_TaskReport]:
    """In a worker."""
    for works in shares:
        notes: list[str] = []
        yield _TaskReport(copy_ranges(source, target, works, options, clients, notes.append), notes)
