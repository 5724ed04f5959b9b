"""The audit's snapshot and tally: the counts are correct under any order, repetition and loss of messages."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.audit.comparison import sum_windows
from ottla.audit.count import AuditMessage, from_json, to_json
from ottla.audit.snapshot import AuditSnapshot
from ottla.audit.tally import Tally
from ottla.model.errors import WireError
from tests.property.property_settings import example_settings

SIZE_MS = 1_000
TIMES = st.lists(st.integers(-3_000, 10_000), max_size=20)
# Times of a batch; whether the report then arrives, and whether that is known.
STEPS = st.lists(st.tuples(st.sampled_from(["clicks", "views"]), TIMES, st.booleans(), st.booleans()), max_size=30)


@example_settings(200)
@given(STEPS, st.integers(1, 8), st.randoms(use_true_random=False))
def test_counts_equal_the_records_despite_lost_repeated_and_reordered_messages(
    steps: list[tuple[str, list[int], bool, bool]], cells_max: int, chance: random.Random
) -> None:
    instances = count(1)
    tally = Tally("producer", SIZE_MS, lambda: UUID(int=next(instances)), cells_max=cells_max)
    truth: Counter[tuple[str, int]] = Counter()
    arrived: list[AuditMessage] = []
    for now_ms, (topic, times_ms, arrives, is_known) in enumerate(steps):
        tally.add(topic, times_ms, now_ms)
        truth.update((topic, time_ms // SIZE_MS * SIZE_MS) for time_ms in times_ms)
        messages = tally.unsent(now_ms)
        if arrives:
            arrived += messages
            if is_known:
                tally.confirm(messages)
    arrived += tally.unsent(len(steps))
    arrived += chance.choices(arrived, k=len(arrived)) if arrived else []
    chance.shuffle(arrived)
    snapshot = AuditSnapshot(from_json(to_json(message)) for message in arrived)
    found = {
        (topic, window.start_ms): tiers["producer"].records
        for (topic, window), tiers in sum_windows(snapshot.counts, SIZE_MS).items()
    }
    assert sum(found.values()) == truth.total() - tally.uncounted_records
    assert all(records <= truth[place] for place, records in found.items())
    if not tally.uncounted_records:
        assert found == truth
    assert snapshot == AuditSnapshot(arrived)


@example_settings(300)
@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.dictionaries(
            st.sampled_from(["tier", "topic", "instance", "sequence", "window_ms", "window_start_ms", "records"]), inner
        ),
        max_leaves=8,
    ).map(lambda value: repr(value).replace("'", '"').encode())
)
def test_random_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        message = from_json(data)
    except WireError:
        return
    assert from_json(to_json(message)) == message
