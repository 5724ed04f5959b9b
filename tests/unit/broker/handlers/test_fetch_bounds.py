"""What a fetch request may make the broker keep while it waits, and longer in a session."""

from __future__ import annotations

import pytest

from ottla.broker.fetching.fetch_plans import FullFetch, SessionFetch
from ottla.broker.fetching.parked_fetches import ParkedFetch
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TOPIC_NAME_LENGTH_MAX
from ottla.protocol.schemas.fetch import FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from tests.unit.broker.handlers.test_fetch import Served, at
from tests.unit.broker.handlers.test_fetch import served as served

LONG_NAME = "x" * (TOPIC_NAME_LENGTH_MAX + 1)


def answer_to(served: Served, request: FetchRequest) -> FetchResponse:
    served.send(request)
    answer = served.answer()
    assert answer is not None
    return answer


@pytest.mark.parametrize(("session_id", "session_epoch"), [(0, -1), (100, 1)])
def test_waiting_fetch_keeps_only_what_it_reads_again(served: Served, session_id: int, session_epoch: int) -> None:
    served.add("t")
    served.ask(at(0), max_wait_ms=0, session_epoch=0)
    assert served.sizes() == [0]
    request = FetchRequest(
        max_wait_ms=1_000,
        min_bytes=1,
        max_bytes=1_000,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic("t", partitions=[at(0)])],
        forgotten_topics_data=[ForgottenTopic("u", partitions=[0])],
        rack_id="r" * 1_000,
    )
    served.send(request)
    kept = plan_parked_in(served).request
    assert (kept.forgotten, kept.rack, bool(kept.topics)) == ([], b"", session_id == 0)
    assert served.answer() is None


def test_waiting_fetch_keeps_no_topic_of_which_it_reads_nothing(served: Served) -> None:
    log = served.add("t")
    nothing = [FetchTopic(f"{index:05}" * 40, partitions=[]) for index in range(60)]
    served.send(
        FetchRequest(
            max_wait_ms=1_000, min_bytes=1, max_bytes=1_000, topics=[FetchTopic("t", partitions=[at(0)]), *nothing]
        )
    )
    assert [name for name, _ in plan_parked_in(served).request.topics] == [b"t"]
    size = log.add()
    assert served.sizes() == [size]


def plan_parked_in(served: Served) -> FullFetch | SessionFetch:
    on_close = served.connection._on_close
    assert on_close is not None
    parked: ParkedFetch[object] = on_close.__self__  # type: ignore[attr-defined]  # of its `cancel`
    plan: object = parked._plan
    assert isinstance(plan, FullFetch | SessionFetch)
    return plan


def test_no_session_is_opened_for_a_name_that_no_topic_has(served: Served) -> None:
    answer = answer_to(served, FetchRequest(session_epoch=0, topics=[FetchTopic(LONG_NAME, partitions=[at(0)])]))
    assert (answer.error_code, answer.session_id, len(served.sessions)) == (0, 0, 0)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_session_ends_when_it_is_given_a_name_that_no_topic_has(served: Served) -> None:
    served.add("t")
    served.ask(at(0), max_wait_ms=0, session_epoch=0)
    assert served.sizes() == [0]
    request = FetchRequest(session_id=100, session_epoch=1, topics=[FetchTopic(LONG_NAME, partitions=[at(0)])])
    assert answer_to(served, request).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(served.sessions) == 0
    assert not served.partition("t").waiting.for_watermark
