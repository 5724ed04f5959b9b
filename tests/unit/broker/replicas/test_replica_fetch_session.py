"""A follower's fetch session: what each request names, and what the leader's side of it has after each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.replicas.replica_fetch_session import PartitionKey, ReplicaFetchSession
from ottla.protocol.fetch import FetchPartition

A, B = b"a" * 16, b"b" * 16


def at(offset: int, index: int = 0) -> FetchPartition:
    return index, 3, offset, 2, 0, 1_000


def test_first_request_names_everything_and_later_ones_what_changed() -> None:
    session = ReplicaFetchSession()
    session.put((A, 0), at(0))
    session.put((B, 1), at(5, 1))
    session.put((A, 2), at(7, 2))
    assert session.request() == (0, 0, [(A, [at(0), at(7, 2)]), (B, [at(5, 1)])], [])
    session.on_response(77)
    assert session.request() == (77, 1, [], [])
    session.on_response(77)
    session.put((B, 1), at(6, 1))
    session.put((A, 0), at(0))  # as before
    session.forget((A, 2))
    assert session.request() == (77, 2, [(B, [at(6, 1)])], [(A, [2])])
    session.on_response(77)
    assert session.request() == (77, 3, [], [])


def test_change_while_a_request_is_under_way_is_in_the_next_one() -> None:
    session = ReplicaFetchSession()
    session.put((A, 0), at(0))
    session.request()
    session.put((A, 1), at(0, 1))
    session.on_response(77)
    assert session.request() == (77, 1, [(A, [at(0, 1)])], [])


def test_log_start_that_moves_is_told_and_the_position_stays() -> None:
    session = ReplicaFetchSession()
    for index in (0, 1):
        session.put((A, index), at(9, index))
    session.request()
    session.on_response(77)
    session.move_log_start((A, 0), 4)
    session.move_log_start((A, 1), 0)  # as before
    session.move_log_start((B, 0), 4)  # not asked for
    assert session.request() == (77, 1, [(A, [(0, 3, 9, 2, 4, 1_000)])], [])


def test_partition_that_is_forgotten_and_asked_again_is_only_changed() -> None:
    session = ReplicaFetchSession()
    session.put((A, 0), at(0))
    session.request()
    session.on_response(77)
    session.forget((A, 0))
    session.put((A, 0), at(9))
    assert session.request() == (77, 1, [(A, [at(9)])], [])


def test_restarted_session_names_everything_and_closes_the_former_one() -> None:
    session = ReplicaFetchSession()
    session.put((A, 0), at(0))
    session.request()
    session.on_response(77)
    session.put((B, 0), at(0))
    session.forget((A, 0))
    session.restart()
    assert session.request() == (77, 0, [(B, [at(0)])], [])
    session.on_response(78)
    assert session.request() == (78, 1, [], [])


def test_leader_without_room_for_a_session_is_sent_everything_each_time() -> None:
    session = ReplicaFetchSession()
    session.put((A, 0), at(0))
    for _ in range(3):
        assert session.request() == (0, 0, [(A, [at(0)])], [])
        session.on_response(0)


def test_epoch_after_the_greatest_is_the_first() -> None:
    session = ReplicaFetchSession()
    session.put((A, 0), at(0))
    session.request()
    session.on_response(77)
    session._epoch = 2**31 - 1
    assert session.request()[1] == 2**31 - 1
    session.on_response(77)
    assert session.request()[1] == 1


KEYS = st.tuples(st.sampled_from([A, B]), st.integers(0, 2))
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(0, 3)),
    st.tuples(st.just("forget"), KEYS, st.none()),
    st.tuples(st.just("exchange"), st.none(), st.booleans()),
    st.tuples(st.just("lost"), st.none(), st.none()),
)


@given(steps=st.lists(STEPS, max_size=40))
def test_leader_knows_what_the_follower_wants_after_each_exchange(
    steps: list[tuple[str, PartitionKey | None, int | None]],
) -> None:
    session, wanted = ReplicaFetchSession(), dict[PartitionKey, FetchPartition]()
    # The leader's side, by session id.
    leader: dict[int, dict[PartitionKey, FetchPartition]] = {}
    next_id = 100
    for step, key, number in [*steps, ("exchange", None, 1)]:
        if step == "put":
            assert key is not None
            assert number is not None
            wanted[key] = at(number, key[1])
            session.put(key, wanted[key])
        elif step == "forget":
            assert key is not None
            wanted.pop(key, None)
            session.forget(key)
        else:
            session_id, epoch, topics, forgotten = session.request()
            named = {(topic_id, fetch[0]): fetch for topic_id, fetches in topics for fetch in fetches}
            if epoch == 0:
                leader.pop(session_id, None)
                next_id += 1
                session_id, has = next_id, named
            else:
                has = {**leader[session_id], **named}
                for topic_id, indexes in forgotten:
                    for index in indexes:
                        has.pop((topic_id, index), None)
            if step == "lost":
                session.restart()
                continue
            assert has == wanted
            leader[session_id] = has
            session.on_response(session_id)


@pytest.mark.parametrize("count", [1, 2])
def test_forgetting_what_was_never_asked_is_nothing(count: int) -> None:
    session = ReplicaFetchSession()
    session.put((A, 0), at(0))
    session.request()
    session.on_response(77)
    for _ in range(count):
        session.forget((B, 0))
    assert session.request() == (77, 1, [], [])
