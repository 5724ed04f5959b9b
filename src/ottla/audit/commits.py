"""Counts of what was committed somewhere, one commit at a time: a lake table's, a mirror's.

A commit's counts are a counter of their own, named by what identifies the commit.  So any
process may publish them from the commit's metadata, any number of times: they count once.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from ottla.audit.count import LAKE, NO_TOPIC_ID, Count, CountKey
from ottla.model.identifiers import uuid_from_text
from ottla.model.windows import DEFAULT_WINDOW_MS, Window, check_window_ms

_COMMITS: Final = UUID("6f9d3c0e-5a0b-4a53-9c39-30a8a4d2a1c7")


def commit_counts(
    tier: str,
    commit: str,
    topic: str,
    records: Mapping[int, int],
    committed_ms: int,
    *,
    topic_id: UUID = NO_TOPIC_ID,
    window_ms: int = DEFAULT_WINDOW_MS,
) -> list[Count]:
    """The counts of one commit: so many records of `topic` in the windows that begin at these times.

    `commit` identifies the commit, and is the same each time: "file:///lake/clicks 7".  `committed_ms` is
    its time, which decides which of its records were late.

    publish(cluster, commit_counts("lake", f"{table} {version}", "clicks", {1_330_604_400_000: 70}, now_ms))
    """
    check_window_ms(window_ms)
    instance = uuid.uuid5(_COMMITS, f"{tier}\0{commit}\0{topic}\0{topic_id}")
    return [
        Count(
            CountKey(tier, instance, topic, topic_id, Window(start_ms, window_ms)),
            1,
            count,
            count if committed_ms >= start_ms + window_ms else 0,
            committed_ms,
        )
        for start_ms, count in sorted(records.items())
    ]


def load_counts(table: str, facts: Mapping[str, str], committed_ms: int) -> list[Count]:
    """What one commit of a load counts, from the facts that the load keeps beside it in the table.

    `table` names the table.  The commit is known by the offsets that it holds, which no other one does.  A commit of
    another writer has no counts among its facts: the result is empty.  Raises ValueError for facts that are not a
    load's.
    """
    if "ottla.window_counts" not in facts:
        return []
    window_ms = int(facts["ottla.window_ms"])
    topic_ids = json.loads(facts["ottla.topic_ids"])
    commit = f"{table} {facts['ottla.first_offsets']} {facts['ottla.offsets']}"
    found: list[Count] = []
    for topic, records in json.loads(facts["ottla.window_counts"]).items():
        counts = {int(start_ms): int(count) for start_ms, count in records.items()}
        topic_id = uuid_from_text(topic_ids[topic])
        found += commit_counts(LAKE, commit, topic, counts, committed_ms, topic_id=topic_id, window_ms=window_ms)
    return found
