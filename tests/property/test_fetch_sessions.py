"""A session against full fetches: a reader that applies its responses always has the contents of a full response."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.broker.fetching.fetch_read import read_request
from ottla.broker.fetching.fetch_session import FetchSession
from ottla.broker.fetching.fetch_session_cache import FetchSessionCache
from ottla.broker.partitions.partition_read import PartitionRead
from ottla.broker.partitions.partition_table import PartitionIndex, PartitionTable
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.fetch import FetchPartition, FetchRequest
from tests.property.property_settings import example_settings
from tests.unit.broker.served_log import MANY_BYTES as MANY
from tests.unit.broker.served_log import ServedLog, one_record, topic_id_of

GONE = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
PLACES = [("a", 0), ("a", 1), ("b", 0)]
PLACE = st.sampled_from(PLACES)
OFFSET = st.sampled_from([0, 0, 0, 1, 3])


BATCH = one_record()


class Sessions(RuleBasedStateMachine):
    """Logs that are created and deleted, one session on them, and its reader's state: its requests, its responses."""

    def __init__(self) -> None:
        super().__init__()
        ids = itertools.count(1)
        self.cache = FetchSessionCache(5, lambda: next(ids))
        self.table = PartitionTable()
        self.logs: dict[tuple[str, int], ServedLog] = {}
        self.asked: dict[tuple[str, int], FetchPartition] = {}
        self.told: dict[tuple[str, int], tuple[int, int, int]] = {}
        self.gone_untold: set[tuple[str, int]] = set()
        self.session: FetchSession
        self.key: Callable[[str], bytes]
        self.partitions: PartitionIndex

    @initialize(places=st.sets(PLACE, min_size=2), wanted=st.dictionaries(PLACE, OFFSET), by_id=st.booleans())
    def begin(self, places: set[tuple[str, int]], wanted: dict[tuple[str, int], int], by_id: bool) -> None:
        self.key = topic_id if by_id else str.encode
        self.partitions = self.table.by_id if by_id else self.table.by_name
        for place in sorted(places):
            self.create(place)
        self.asked = {place: fetch_of(place, offset) for place, offset in wanted.items()}
        request = request_of(self.asked, self.key)
        read = read_request(self.partitions, request, MANY)
        session = self.cache.open(len(wanted), 0, uses_topic_ids=by_id)
        assert session is not None
        session.fill(self.partitions, request, read)
        self.cache.touch(session, 0)
        self.session = session
        for topic, parts in read.topics:
            for part in parts:
                self.told[self.name_of(topic), part.partition] = facts(part)

    def name_of(self, topic: bytes) -> str:
        return next(name for name, _ in PLACES if self.key(name) == topic)

    @rule(place=PLACE)
    def create(self, place: tuple[str, int]) -> None:
        if place not in self.logs:
            self.logs[place] = ServedLog(*place)
            self.table.add(self.logs[place].partition)

    @rule(place=PLACE)
    def delete(self, place: tuple[str, int]) -> None:
        if self.logs.pop(place, None) is not None:
            self.table.remove(TopicPartition(*place))
            if place in self.asked and self.told[place][0] not in GONE:
                self.gone_untold.add(place)

    @rule(place=PLACE, is_stable=st.booleans())
    def append(self, place: tuple[str, int], is_stable: bool) -> None:
        log = self.logs.get(place)
        if log is not None:
            log.add(is_stable=is_stable)

    @rule(place=PLACE)
    def move_log_start(self, place: tuple[str, int]) -> None:
        partition = self.table.find(*place)
        if partition is not None and partition.log_start_offset < partition.high_watermark:
            partition.delete_records_before(partition.log_start_offset + 1)
            partition.waiting.wake_fetches()

    @rule(
        wanted=st.dictionaries(PLACE, OFFSET, max_size=3),
        forgotten=st.sets(PLACE, max_size=2),
        follows=st.sampled_from([True, False, False]),
        looks=st.integers(1, 3),
        limit_bytes=st.sampled_from([0, len(BATCH), MANY]),
    )
    def fetch(
        self,
        wanted: dict[tuple[str, int], int],
        forgotten: set[tuple[str, int]],
        follows: bool,
        looks: int,
        limit_bytes: int,
    ) -> None:
        """A request that is evaluated this many times before its response, like one that waits."""
        changed = {place: fetch_of(place, offset) for place, offset in wanted.items()}
        if follows:
            for place, (code, high_watermark, _) in self.told.items():
                if place in self.asked and not code:
                    changed.setdefault(place, fetch_of(place, high_watermark))
        self.asked |= changed
        for place in changed:
            self.told.setdefault(place, (-2, -1, -1))
        for place in forgotten:
            self.asked.pop(place, None)
            self.told.pop(place, None)
            self.gone_untold.discard(place)
        gone = request_of(dict.fromkeys(sorted(forgotten)), self.key).forgotten
        self.session.update(request_of(changed, self.key).topics, gone)
        assert self.session.partitions_count == len(self.asked)
        self.session.advance()
        for _ in range(looks):
            read = self.session.read(self.partitions, limit_bytes)
            self.session.watch_candidates()
        self.session.note_sent(read)
        answered = {(self.name_of(topic), part.partition): part for topic, parts in read.by_topic() for part in parts}
        assert len(answered) == len(read.reads)
        self.check(answered, limit_bytes)

    def check(self, answered: dict[tuple[str, int], PartitionRead], limit_bytes: int) -> None:
        assert answered.keys() <= self.asked.keys()
        for place, part in answered.items():
            if place in self.gone_untold:
                # With any present topic of the name: the reader learns first that the topic it read is gone.
                assert part.error_code in GONE
            assert part.run is not None or part.error_code or facts(part) != self.told[place]
            self.told[place] = facts(part)
        full = read_request(self.partitions, request_of(self.asked, self.key), MANY)
        for topic, parts in full.topics:
            for part in parts:
                place = self.name_of(topic), part.partition
                if place not in self.gone_untold:
                    assert self.told[place] == facts(part), place
                    assert place in answered or not part.error_code
                    assert limit_bytes < MANY or (part.run is None) == (
                        place not in answered or not answered[place].run
                    )
        if full.readable_bytes and not self.gone_untold:
            assert any(part.run is not None for part in answered.values())
        self.gone_untold.clear()

    @invariant()
    def only_settled_partitions_and_waiting_ones_are_watched(self) -> None:
        if hasattr(self, "session"):
            mine = set(self.session)
            for partition in self.table:
                assert set(partition.waiting.for_watermark) <= mine

    def teardown(self) -> None:
        if hasattr(self, "session"):
            self.cache.remove(self.session.id)
        assert not any(partition.waiting.for_watermark for partition in self.table)


def fetch_of(place: tuple[str, int], offset: int) -> FetchPartition:
    return (place[1], -1, offset, -1, -1, MANY)


def facts(part: PartitionRead) -> tuple[int, int, int]:
    return part.error_code, part.high_watermark, part.log_start_offset


def topic_id(name: str) -> bytes:
    return topic_id_of(name).bytes


def request_of(
    wanted: dict[tuple[str, int], FetchPartition] | dict[tuple[str, int], None], key: Callable[[str], bytes]
) -> FetchRequest:
    """The request of a reader; a partition without a fetch is forgotten."""
    topics: dict[bytes, list[FetchPartition]] = {}
    forgotten: dict[bytes, list[int]] = {}
    for (name, index), fetch in wanted.items():
        if fetch is None:
            forgotten.setdefault(key(name), []).append(index)
        else:
            topics.setdefault(key(name), []).append(fetch)
    return FetchRequest(-1, 0, 1, MANY, 0, 0, 0, list(topics.items()), list(forgotten.items()), b"")


TestFetchSessions = Sessions.TestCase
TestFetchSessions.settings = example_settings(250, steps_count=30)
