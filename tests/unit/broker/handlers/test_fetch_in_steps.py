"""A large fetch is served in steps, between which its partitions and its session may change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.broker.fetching.fetch_plans import FullFetch
from ottla.broker.fetching.fetch_read import FetchRead
from ottla.broker.fetching.large_fetches import LargeFetch
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.fetch import read_fetch
from ottla.protocol.messages import encode_request
from ottla.protocol.schemas.fetch import FetchRequest
from ottla.runtime.steps import run_steps
from tests.unit.broker.handlers.test_fetch import VERSION, Served, at, topic

FIRST_SESSION = 100


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served(slots=1)
    yield made
    made.connection.close("the test ended")
    made.client.close()


class OpeningFetch:
    """A fetch that opens a session, of which the test makes the steps."""

    def __init__(self, served: Served) -> None:
        body = encode_request(
            ApiKey.FETCH, VERSION, FetchRequest(max_bytes=1_000_000, session_epoch=0, topics=[topic("t", at(0))])
        )
        request = read_fetch(memoryview(body), 0, len(body), VERSION)
        self._plan = LargeFetch(FullFetch(served.handler._service, request, VERSION, 5, ("here", 9092)))
        self._read: list[FetchRead] = []

    def read(self) -> None:
        self._read = run_steps(self._plan.read())

    def respond(self) -> None:
        run_steps(self._plan.response(self._read))


def test_session_tells_a_record_that_came_between_the_read_and_its_opening(served: Served) -> None:
    log = served.add("t")
    fetch = OpeningFetch(served)
    fetch.read()
    size = log.add()
    fetch.respond()
    served.ask(session_id=FIRST_SESSION, session_epoch=1)
    assert served.sizes() == [size]


def test_session_tells_that_a_partition_went_between_the_read_and_its_opening(served: Served) -> None:
    served.add("t")
    fetch = OpeningFetch(served)
    fetch.read()
    served.table.remove(served.partition("t").topic_partition)
    fetch.respond()
    served.ask(session_id=FIRST_SESSION, session_epoch=1)
    assert [each.error_code for each in served.partitions()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_fetch_whose_session_lost_its_place_is_answered_without_one(served: Served) -> None:
    served.add("t")
    fetch = OpeningFetch(served)
    fetch.read()
    steps = fetch._plan.response(fetch._read)
    next(steps)
    served.sessions.remove(FIRST_SESSION)
    run_steps(steps)
    assert (len(served.sessions), served.sessions.partitions_count) == (0, 0)
