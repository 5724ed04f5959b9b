"""The options of a mirror: what it copies, and how.  Contradictory ones are refused here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

from ottla.client.groups.subscription import check_pattern
from ottla.model.errors import ConfigError
from ottla.model.limits import MIB

# They are about the source's own replicas and writes, or would change copied records.
UNCOPIED_CONFIGS: Final = (
    r"follower\.replication\.throttled\.replicas",
    r"leader\.replication\.throttled\.replicas",
    r"message\.timestamp\..*",
    r"min\.insync\.replicas",
    r"unclean\.leader\.election\.enable",
    r"compression\.(type|.*\.level)",
)
UNCOPIED_GROUPS: Final = (r"console-consumer-.*", r"__.*")

# In a run with an end a partition that fails so often in a row is given up.
FAILURES_MAX: Final = 6

# A mirror's transaction may be open for twice as long (`copy_transactions.TIMEOUT_MS`): its batches and its commit may
# be late by as much again.
TRANSACTION_INTERVAL_MS_MAX: Final = 30_000

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
FAIL: Final = "fail"
ACCEPT: Final = "accept"
APPEND: Final = "append"


@dataclass(frozen=True, slots=True)
class Names:
    """Names that one of `include` matches as a whole and none of `exclude`; patterns of Python's `re`.

    Names("page-.*, clicks") in the flags' form is Names(("page-.*", "clicks")).
    """

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.include, *self.exclude):
            check_pattern(pattern)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _matches(self.include, name) and not _matches(self.exclude, name)


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """Times in ms.  Raises ConfigError.

    topics, groups         what is copied; what the clusters keep about themselves (`model.own_names`) never is
    configs                the topic settings that are kept in step; none with Names(())
    start                  "earliest" or "latest": where a topic that was not copied before begins
    rate_bytes_s           at most so many bytes a second are read, over all topics; None: no limit
    replication_factor     of topics that are made; -1: the target's default
    existing_topics        "fail": a topic of that name on the target that has records is not touched; "append": its
                           records stay, and the source's come after them
    recreated_topics       the source's topic was deleted and recreated: "append" copies the new one from its beginning,
                           after what is there; "fail" stops copying it
    foreign_records        another writer's records in the copy: "fail" stops copying that partition, "accept" counts
    tells_audit            the copied records are counted in the audit of both clusters, in the tier "mirror"; that
                           reads the records' times in every batch
    session_timeout_ms     a mirror that was killed is replaced by another one after this
    is_transactional       records and progress are written in one transaction every `progress_interval_ms`, where the
                           target has transactions, and before each commit of groups: exact for its readers of
                           committed records.  `progress_interval_ms` is below 30 s then
    """

    topics: Names = Names((".*",))
    groups: Names = Names((".*",), UNCOPIED_GROUPS)
    configs: Names = Names((".*",), UNCOPIED_CONFIGS)
    start: str = EARLIEST
    rate_bytes_s: int | None = None
    replication_factor: int = -1
    existing_topics: str = FAIL
    recreated_topics: str = APPEND
    foreign_records: str = FAIL
    tells_audit: bool = False
    refresh_interval_ms: int = 10_000
    groups_interval_ms: int = 10_000
    progress_interval_ms: int = 1_000
    audit_interval_ms: int = 60_000
    session_timeout_ms: int = 10_000
    in_flight_bytes_max: int = 32 * MIB
    is_transactional: bool = False

    def __post_init__(self) -> None:
        _one_of("start", self.start, (EARLIEST, LATEST))
        _one_of("existing_topics", self.existing_topics, (FAIL, APPEND))
        _one_of("recreated_topics", self.recreated_topics, (FAIL, APPEND))
        _one_of("foreign_records", self.foreign_records, (FAIL, ACCEPT))
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) is int and value < 1 and (each.name, value) != ("replication_factor", -1):
                raise ConfigError(f"{each.name} is {value}; it must be at least 1")
        if self.is_transactional and self.progress_interval_ms >= TRANSACTION_INTERVAL_MS_MAX:
            raise ConfigError(
                f"progress_interval_ms is {self.progress_interval_ms}; with transactions it must be below"
                f" {TRANSACTION_INTERVAL_MS_MAX}",
                hint="the target aborts a transaction that is open for longer than a minute",
            )


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{name} is {value!r}; it is one of {', '.join(known)}")
