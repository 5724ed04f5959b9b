"""The tests of a foreign suite that are known to fail, each with the broker and the reason.

One entry a line; a line that starts with white space continues the reason:

    ottla         fails   0081_admin@AlterConfigs -- alters a setting of the broker, which is read at the start
    both          varies  0123_timing             -- measures the machine's load

`fails` must fail each time, `varies` may pass.  A failure that is not listed is a problem, and so is an entry that
passes, or that names a test which was not run: so the list cannot become stale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from tests.peers.either_broker import BrokerKind

_ENTRY: Final = re.compile(r"(both|ottla|apache-kafka)\s+(fails|varies)\s+(.+?)\s+--\s+(\S.*)")


class Result(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Entry(NamedTuple):
    brokers: frozenset[BrokerKind]
    may_pass: bool
    test: str
    reason: str


class Verdict(NamedTuple):
    """`problems` are sentences; none when every result was as expected."""

    passed: int
    failed: int
    skipped: int
    problems: list[str]

    @property
    def counts(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_entries(path: Path) -> list[Entry]:
    """Raises ValueError with the line's number when a line is no entry."""
    entries: list[Entry] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace() and entries:
            entries[-1] = entries[-1]._replace(reason=f"{entries[-1].reason} {line.strip()}")
            continue
        parts = _ENTRY.fullmatch(line.strip())
        if parts is None:
            raise ValueError(f"{path.name}:{number}: not `broker fails|varies test -- reason`: {line!r}")
        broker, kind, test, reason = parts.groups()
        brokers = frozenset(BrokerKind) if broker == "both" else frozenset({BrokerKind(broker)})
        entries.append(Entry(brokers, kind == "varies", test, reason))
    return entries


def judge(results: Mapping[str, Result], entries: Iterable[Entry], broker: BrokerKind) -> Verdict:
    """Compare the results with the expectations for this broker."""
    here = [entry for entry in entries if broker in entry.brokers]
    expected = {entry.test: entry for entry in here}
    problems = [f"listed twice: {test}" for test in expected if sum(entry.test == test for entry in here) > 1]
    for test, result in results.items():
        entry = expected.get(test)
        if result is Result.FAILED and entry is None:
            problems.append(f"failed and is not listed: {test}")
        elif result is not Result.FAILED and entry is not None and not entry.may_pass:
            problems.append(f"{result} and is listed as failing ({entry.reason}): {test}")
    problems += [f"listed and was not run: {test}" for test in expected if test not in results]
    counted = {kind: sum(result is kind for result in results.values()) for kind in Result}
    return Verdict(counted[Result.PASSED], counted[Result.FAILED], counted[Result.SKIPPED], problems)
