"""Large answers of all connections take bounded memory, and those who do not take theirs make room for others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from ottla.broker.net.limits import STALLED_PEER_CONTENDED_MS, SWEEP_INTERVAL_MS
from ottla.broker.net.response_budget import CountedAnswer, ResponseBudget
from ottla.model.errors import WireError
from tests.unit.broker.net.test_listener import FRAME, Served, is_closed

ANSWER = bytes(8 << 20)


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_answers_get_room_in_their_order_as_others_go() -> None:
    room = ResponseBudget(100, 80)
    first = await room.counted(bytes(60))
    waiting = [asyncio.ensure_future(room.counted(bytes(size))) for size in (50, 30)]
    await turn()
    assert [each.done() for each in waiting] == [False, False]
    assert (room.taken_bytes, room.is_contended) == (60, True)
    # There would be room for this one, but others were first.
    with pytest.raises(WireError, match="other clients do not take theirs"):
        await room.counted(bytes(10))
    del first
    answers = [await each for each in waiting]
    assert [len(each) for each in answers] == [50, 30]
    assert (room.taken_bytes, room.is_contended) == (80, False)


async def test_answer_that_nobody_waits_for_any_more_takes_no_room() -> None:
    room = ResponseBudget(100, 80)
    first = await room.counted(bytes(100))
    gone, next_one = (asyncio.ensure_future(room.counted(bytes(size))) for size in (30, 40))
    await turn()
    gone.cancel()
    del first
    await turn()
    assert (len(await next_one), room.taken_bytes) == (40, 40)


async def test_answer_beyond_all_room_waits_until_it_is_alone() -> None:
    room = ResponseBudget(100, 80)
    first = await room.counted(bytes(10))
    large = asyncio.ensure_future(room.counted(bytes(1_000)))
    await turn()
    assert not large.done()
    del first
    assert len(await large) == 1_000


class Answering(Served):
    """Answers of megabytes, from a room for two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.room = self.listener._responses = ResponseBudget(2 * len(ANSWER))

    async def ask(self) -> socket.socket:
        """A client that has been answered, and has taken nothing yet."""
        client = self.connect()
        client.send(FRAME)
        self.loop.turn()
        answer = self.router.parked.pop()
        answer.complete((b"head", await self.room.counted(ANSWER)))
        answer.connection.send_ready()
        del answer
        return client


@pytest.fixture
def answering() -> Iterator[Answering]:
    made = Answering()
    yield made
    made.close()


def take(client: socket.socket, size_bytes: int) -> int:
    taken = 0
    while taken < size_bytes:
        try:
            taken += len(client.recv(size_bytes - taken))
        except BlockingIOError:
            break
    return taken


async def test_room_of_an_answer_is_free_when_it_has_been_taken(answering: Answering) -> None:
    client = await answering.ask()
    assert answering.room.taken_bytes == len(ANSWER)
    taken = 0
    while taken < 4 + len(ANSWER):
        taken += take(client, 1 << 20)
        answering.loop.turn()
    assert answering.room.taken_bytes == 0


async def test_who_takes_nothing_while_others_wait_for_room_is_closed(answering: Answering) -> None:
    silent, reading = await answering.ask(), await answering.ask()
    answering.pass_time(STALLED_PEER_CONTENDED_MS)
    # No response waits.
    assert answering.listener.connections_count == 2
    waiting = asyncio.ensure_future(answering.room.counted(ANSWER))
    await turn()
    for _ in range(STALLED_PEER_CONTENDED_MS // SWEEP_INTERVAL_MS + 1):
        assert not waiting.done()
        answering.pass_time(SWEEP_INTERVAL_MS)
        take(reading, 20_000)
    await turn()
    assert isinstance(waiting.result(), CountedAnswer)
    while not is_closed(silent):
        pass
    assert answering.listener.connections_count == 1
    assert answering.room.taken_bytes == 2 * len(ANSWER)
