from __future__ import annotations

import asyncio
import threading

from ottla.client.producing.aio_producer import LoopCalls
from ottla.runtime.event_loop import run


def test_calls_of_another_thread_run_on_the_loop_in_order() -> None:
    async def wait() -> list[int]:
        calls = LoopCalls(asyncio.get_running_loop())
        found: list[int] = []
        done, end = calls.future()

        def put_all() -> None:
            for number in range(1000):
                calls.put(lambda number=number: found.append(number))  # type: ignore[misc]
            end()

        thread = threading.Thread(target=put_all)
        thread.start()
        await done
        thread.join()
        return found

    assert run(wait()) == list(range(1000))


def test_end_of_a_cancelled_future_does_nothing() -> None:
    async def wait() -> None:
        calls = LoopCalls(asyncio.get_running_loop())
        future, end = calls.future()
        future.cancel()
        end()
        other, end_other = calls.future()
        end_other()
        await other

    run(wait())


def test_calls_for_a_closed_loop_are_dropped() -> None:
    loop = asyncio.new_event_loop()
    calls = LoopCalls(loop)
    loop.close()
    calls.put(lambda: None)
