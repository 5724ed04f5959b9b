"""One commit to a table that others write to as well: again when they did not touch what it is about, else refused."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from ottla.spark.errors import LakeError
from ottla.spark.lake.columns import new_columns
from ottla.spark.lake.lake_table import COMMIT_ID, COMMITS_SEARCHED, CommitConflict, LakeTable, TableCommit

T = TypeVar("T")

ATTEMPTS_MAX: Final = 50
# Writers that lost a race pause for a random time below a limit that doubles from the first value to the second, so
# that many of them do not meet again.
_PAUSE_LIMIT_FIRST_S: Final = 0.02
_PAUSE_LIMIT_MAX_S: Final = 2.0


class FilesReplaced(LakeError):
    """Another writer has removed files that the commit removes, or rows of them; nothing was committed."""


def publish(
    table: LakeTable,
    commit: TableCommit,
    expected: Mapping[str, int | None],
    *,
    listed_at: int | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Commit files and numbers at once; the table's version after it.  Columns that the files add are added before.

    `expected`: the table's numbers on which the commit was planned.  `listed_at`: the version at which the files that
    the commit removes were listed.  A conflict is retried after a pause by `sleep` (seconds).  Raises `LakeError` when
    another writer has moved the numbers, and `FilesReplaced` when it has removed those files or rows of them; nothing
    was committed then.
    """
    commit_id = str(uuid.uuid4())
    commit = replace(commit, facts={**commit.facts, COMMIT_ID: commit_id})
    rng = random.Random(commit_id)
    for attempt in range(ATTEMPTS_MAX):
        if attempt:
            sleep(_pause_s(rng, attempt))
        try:
            _check_unchanged(table, commit, expected, listed_at)
            schemas = [file.schema for file in commit.added]
            if new_columns(table.schema, schemas, widens=table.widens_columns):
                # They are a change of the table apart from the commit: only one that is not refused adds them, so it
                # must know the commits of others.
                table.refresh()
                _check_unchanged(table, commit, expected, listed_at)
                table.add_columns(new_columns(table.schema, schemas, widens=table.widens_columns))
                _check_unchanged(table, commit, expected, listed_at)
            return table.commit(commit)
        except CommitConflict:
            table.refresh()
            # An answer that was lost on its way may look like a conflict.
            if any(each.facts.get(COMMIT_ID) == commit_id for each in table.newest_facts(COMMITS_SEARCHED)):
                return table.version
    raise _lost_races(table)


def repeat_after_conflicts(
    table: LakeTable, change: Callable[[], T], *, sleep: Callable[[float], object] = time.sleep
) -> T:
    """The result of a change that is decided by the table as it is then: after a conflict it is read and decided again.

    Raises `LakeError` when other writers were always faster.
    """
    rng = random.Random()
    for attempt in range(ATTEMPTS_MAX):
        if attempt:
            sleep(_pause_s(rng, attempt))
            table.refresh()
        try:
            return change()
        except CommitConflict:
            continue
    raise _lost_races(table)


def _pause_s(rng: random.Random, attempt: int) -> float:
    return rng.uniform(0, min(_PAUSE_LIMIT_FIRST_S * 2 ** (attempt - 1), _PAUSE_LIMIT_MAX_S))


def _lost_races(table: LakeTable) -> LakeError:
    return LakeError(f"{table.name}: other writers were faster {ATTEMPTS_MAX} times", hint="try again")


def _check_unchanged(
    table: LakeTable, commit: TableCommit, expected: Mapping[str, int | None], listed_at: int | None
) -> None:
    """The table may be newer than the plan: a commit of others that it has already is no conflict any more."""
    _check_numbers(table, expected)
    if commit.removed and table.version != listed_at:
        _check_files(table, commit)


def _check_numbers(table: LakeTable, expected: Mapping[str, int | None]) -> None:
    for app_id, number in expected.items():
        found = table.number_of(app_id)
        if found != number:
            raise LakeError(
                f"another load of these topics was committed meanwhile: {table.name} has {found} for {app_id}, "
                f"this load was planned on {number}",
                hint="run this one again",
            )


def _check_files(table: LakeTable, commit: TableCommit) -> None:
    untouched = {file.path for file in table.files() if not file.has_deletes}
    if not untouched.issuperset(file.path for file in commit.removed):
        raise FilesReplaced(
            f"files of {table.name} were replaced meanwhile, by a compaction or a backfill, or rows of them deleted",
            hint="run this one again",
        )
