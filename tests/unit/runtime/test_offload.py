"""Long work with blocking calls: the same coroutine with and without an event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.runtime import loop_offload
from ottla.runtime.loop_offload import LoopOffload, paced
from ottla.runtime.offload import INLINE, Offload, run_inline
from ottla.runtime.steps import Steps


async def _work(offload: Offload, threads: list[int]) -> str:
    await offload.pause()
    threads.append(await offload(threading.get_ident))
    await offload.pause()
    return "done"


def _fails() -> None:
    raise OSError(28, "no room")


def test_work_runs_to_its_end_in_the_callers_thread_without_a_loop() -> None:
    threads: list[int] = []
    assert run_inline(_work(INLINE, threads)) == "done"
    assert threads == [threading.get_ident()]


def test_work_that_would_wait_is_refused_without_a_loop() -> None:
    with pytest.raises(AssertionError, match="event loop"):
        run_inline(asyncio.sleep(0))


def test_error_of_a_blocking_call_is_raised_where_it_was_called_from_without_a_loop() -> None:
    with pytest.raises(OSError, match="no room"):
        run_inline(INLINE(_fails))


async def test_blocking_calls_run_in_another_thread_on_the_loop() -> None:
    threads: list[int] = []
    assert await _work(LoopOffload(), threads) == "done"
    assert threads != [threading.get_ident()]


async def test_error_of_a_blocking_call_is_raised_where_it_was_called_from_on_the_loop() -> None:
    with pytest.raises(OSError, match="no room"):
        await LoopOffload()(_fails)


class SlowLoop:
    """The running loop: the number of its turn, and a time that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.turn = 0
        monkeypatch.setattr(loop_offload, "perf_counter", lambda: self.now_s)
        self._count()

    def _count(self) -> None:
        self.turn += 1
        asyncio.get_running_loop().call_soon(self._count)


async def test_long_works_take_one_slice_together_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = SlowLoop(monkeypatch)
    turns: list[tuple[int, str]] = []

    async def work(name: str) -> None:
        offload = LoopOffload()
        for _ in range(3):
            seen.now_s += 0.005
            await offload.pause()
            turns.append((seen.turn, name))

    loop = asyncio.get_running_loop()
    works = [loop.create_task(work(name)) for name in "abcd"]
    # Work that ends before its turn delays no other work.
    gone = loop.create_task(work("gone"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(*works)
    assert [name for _, name in turns] == list("abcd") * 3
    assert len({each for each, _ in turns}) == len(turns)


async def test_long_works_that_start_in_one_turn_do_not_all_take_a_slice_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = SlowLoop(monkeypatch)
    turns: list[int] = []

    def steps() -> Steps[None]:
        for _ in range(3):
            seen.now_s += 0.005
            turns.append(seen.turn)
            yield

    await asyncio.gather(*(paced(steps()) for _ in range(4)))
    assert len(set(turns)) == len(turns) == 12


@pytest.mark.parametrize(("steps_ms", "turns_count"), [([1, 1, 1, 1, 1, 1], 3), ([5, 5], 2), ([0] * 9, 0)])
async def test_others_run_after_each_slice_of_work(
    monkeypatch: pytest.MonkeyPatch, steps_ms: list[int], turns_count: int
) -> None:
    now_s = 100.0
    monkeypatch.setattr(loop_offload, "perf_counter", lambda: now_s)
    offload = LoopOffload()
    turns: list[str] = []
    for step_ms in steps_ms:
        now_s += step_ms / 1000 + 1e-9
        others = asyncio.get_running_loop().call_soon(turns.append, "other")
        await offload.pause()
        others.cancel()
    assert len(turns) == turns_count
