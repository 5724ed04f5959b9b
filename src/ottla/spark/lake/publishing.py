"""One commit to a table that others write to as well: again when they did not touch what it is about, else refused."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.spark.errors import LakeError
from ottla.spark.lake.columns import new_columns
from ottla.spark.lake.lake_table import COMMIT_ID, COMMITS_SEARCHED, CommitConflict, LakeTable, TableCommit

ATTEMPTS_MAX: Final = 50


def publish(table: LakeTable, commit: TableCommit, expected: Mapping[str, int | None]) -> int:
    """Commit files and numbers at once; the table's version after it.  Columns that the files add are added before.

    `expected`: the table's numbers on which the commit was planned.  Raises `LakeError` when another writer has moved
    them, or has removed files that the commit removes; nothing was committed then.
    """
    commit_id = str(uuid.uuid4())
    commit = replace(commit, facts={**commit.facts, COMMIT_ID: commit_id})
    for _ in range(ATTEMPTS_MAX):
        try:
            table.add_columns(new_columns(table.schema, [file.schema for file in commit.added]))
            return table.commit(commit)
        except CommitConflict as conflict:
            table.refresh()
            # An answer that was lost on its way may look like a conflict.
            if any(each.facts.get(COMMIT_ID) == commit_id for each in table.newest_facts(COMMITS_SEARCHED)):
                return table.version
            _check_untouched(table, commit, expected, conflict)
    raise LakeError(f"{table.name}: other writers were faster {ATTEMPTS_MAX} times", hint="try again")


def _check_untouched(
    table: LakeTable, commit: TableCommit, expected: Mapping[str, int | None], conflict: CommitConflict
) -> None:
    if any(table.number_of(app_id) != number for app_id, number in expected.items()):
        raise LakeError(
            f"another load of these topics was committed meanwhile: {conflict}", hint="run this one again"
        ) from conflict
    if commit.removed and {file.path for file in commit.removed}.difference(file.path for file in table.files()):
        raise LakeError(
            f"files of {table.name} were replaced meanwhile, by a compaction or a backfill: {conflict}",
            hint="run this one again",
        ) from conflict
