"""Letters of a key are erased from a dead-letter topic, and the others stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest

from ottla.client.admin.admin import Admin, NewTopic
from ottla.client.fetching.offsets import log_ranges
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.dead_letters import DeadLetters, Replay
from ottla.dead_letters.claims import ClaimedBatch, ClaimedLetter, ReplayClaim, State
from ottla.dead_letters.claims_log import ClaimsLog
from ottla.dead_letters.erasing import ErasedLetters, ReplayIsOpen, erase_letters
from ottla.dead_letters.letter import DeadLetter
from ottla.dead_letters.topics import SUFFIX, letters_of
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.testing import Namespace, Record, Topic, consume_all, produce

RECORDS = [
    Record(b"a", key=b"7", headers=[("own", b"1")]),
    Record(b"b", key=b"8"),
    Record(b"c"),
    Record(b"d", key=b"7"),
    Record(b"e", key=b"8", headers=[("own", b"2")]),
]


class Stored(NamedTuple):
    offset: int
    set_aside_ms: int
    letter: DeadLetter | None


def set_aside(topic: Topic) -> None:
    produce(topic, RECORDS)
    with DeadLetters(topic.bootstrap, stage="BOOK") as dead_letters:
        dead_letters.put_all([(message, KeyError("euro")) for message in consume_all(topic, count=len(RECORDS))])


@pytest.fixture
def orders(namespace: Namespace) -> Topic:
    topic = namespace.topic("orders")
    set_aside(topic)
    return topic


def stored(cluster: Cluster, topic: Topic) -> list[Stored]:
    found = letters_of(cluster, topic + SUFFIX)
    return [Stored(each.message.offset, each.message.timestamp_ms, each.letter) for each in found]


def test_the_other_letters_stay_as_they_were_and_in_their_order(orders: Topic, cluster: Cluster) -> None:
    before = stored(cluster, orders)
    dry = erase_letters(cluster, orders + SUFFIX, {b"7"}, is_dry=True)
    assert stored(cluster, orders) == before
    done = erase_letters(cluster, orders + SUFFIX, {b"7"})
    assert [str(each) for each in done.erased] == [str(each) for each in dry.erased] == ["0:0", "0:3"]
    assert done.rewritten_count == 3
    assert not done.left
    after = stored(cluster, orders)
    assert [each[1:] for each in after] == [each[1:] for each in before if each.letter and each.letter.key != b"7"]
    partition = TopicPartition(orders + SUFFIX, 0)
    assert log_ranges(cluster, [partition])[partition] == range(5, 8)
    assert not erase_letters(cluster, orders + SUFFIX, {b"7"}).erased
    assert stored(cluster, orders) == after


def test_erasure_that_is_killed_between_its_steps_is_completed_by_the_next_one(
    orders: Topic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored(cluster, orders)
    delete_records = Admin.delete_records

    def die_at_a_deletion(admin: Admin, before_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if any(before_offsets.values()):
            raise SystemExit("killed")
        return delete_records(admin, before_offsets)

    monkeypatch.setattr(Admin, "delete_records", die_at_a_deletion)
    with pytest.raises(SystemExit):
        erase_letters(cluster, orders + SUFFIX, {b"7"})
    monkeypatch.setattr(Admin, "delete_records", delete_records)
    kept = [each for each in before if each.letter and each.letter.key != b"7"]
    assert [each[1:] for each in stored(cluster, orders)] == [each[1:] for each in (*before, *kept)]
    done = erase_letters(cluster, orders + SUFFIX, {b"7"})
    assert ([each.offset for each in done.erased], done.rewritten_count) == ([0, 3], 3)
    assert [each[1:] for each in stored(cluster, orders)] == [each[1:] for each in kept]
    assert Replay(cluster, orders + SUFFIX).run().put_back == len(kept)


def test_letters_that_were_put_back_are_not_put_back_again(orders: Topic, cluster: Cluster) -> None:
    Replay(cluster, orders + SUFFIX, selects=lambda each: each.message.offset == 1).run()
    erase_letters(cluster, orders + SUFFIX, {b"7"})
    outcome = Replay(cluster, orders + SUFFIX).run()
    assert (outcome.put_back, outcome.were_back) == (2, 1)
    values = [message.value for message in consume_all(orders)]
    assert values[len(RECORDS) :] == [b"b", b"c", b"e"]


def test_nothing_is_erased_while_a_killed_replay_has_letters_to_put_back(orders: Topic, cluster: Cluster) -> None:
    log = ClaimsLog(cluster)
    log.ensure(cluster.topic(orders))
    batch = ClaimedBatch(orders, 0, 5, (ClaimedLetter(0, 1, bytes(15) + b"e"),))
    claim = ReplayClaim(f"{orders}-claim", orders + SUFFIX, State.BEGUN, 0, 1, 0, (batch,))
    log.append(claim)
    with pytest.raises(ReplayIsOpen, match="is not complete"):
        erase_letters(cluster, orders + SUFFIX, {b"7"})
    assert len(stored(cluster, orders)) == len(RECORDS)
    # Other tests of this broker have replays, too.
    log.append(claim.withdrawn())
    assert len(erase_letters(cluster, orders + SUFFIX, {b"7"}).erased) == 2


def test_tombstones_are_written_where_a_topic_is_compacted_alone(namespace: Namespace, cluster: Cluster) -> None:
    topic = namespace.topic("compacted")
    Admin(cluster).create_topics([NewTopic(topic + SUFFIX, 1, configs={"cleanup.policy": "compact"})])
    keyed = [RECORDS[index] for index in (0, 1, 3, 4)]
    produce(topic, keyed)
    with DeadLetters(topic.bootstrap) as dead_letters:
        dead_letters.put_all([(message, "bad") for message in consume_all(topic, count=len(keyed))])
    done = erase_letters(cluster, topic + SUFFIX, {b"7"})
    assert (done.erased, [each.offset for each in done.left], done.has_tombstones) == ((), [0, 2], True)
    last = list(letters_of(cluster, topic + SUFFIX))[-1].message
    assert (last.key, last.value) == (b"7", None)
    again = erase_letters(cluster, topic + SUFFIX, {b"7"})
    assert [each.offset for each in again.left] == [0, 2]


def test_a_compacted_topic_with_the_tombstone_alone_has_no_letters_of_the_key(
    namespace: Namespace, cluster: Cluster
) -> None:
    """What compaction leaves of an erasure: a further one ends, and does not write another tombstone."""
    topic = namespace.topic("compacted", configs={"cleanup.policy": "compact"})
    produce(topic, [Record(None, key=b"7")])
    assert erase_letters(cluster, topic, {b"7"}) == ErasedLetters([])
    assert len(list(letters_of(cluster, topic))) == 1


def test_letters_that_the_broker_does_not_delete_are_reported_with_the_end_of_their_retention(
    orders: Topic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_admin: Admin, before_offsets: object, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        raise BrokerRefused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {orders}{SUFFIX}")

    monkeypatch.setattr(Admin, "delete_records", refuse)
    before = stored(cluster, orders)
    done = erase_letters(cluster, orders + SUFFIX, {b"7"})
    assert (done.erased, [each.offset for each in done.left], done.has_tombstones) == ((), [0, 3], False)
    # Letters are kept until they are deleted, unless a user changes that.
    assert done.left_until_ms(done.left[0]) is None
    assert replace(done, retention_ms=1_000).left_until_ms(done.left[0]) == before[0].set_aside_ms + 1_000
    assert stored(cluster, orders) == before
