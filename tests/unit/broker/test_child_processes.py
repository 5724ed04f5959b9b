from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import pytest

from ottla.broker import child_processes
from ottla.broker.child_processes import ChildProcess
from ottla.testing.fake_clock import FakeClock


async def until_logged(caplog: pytest.LogCaptureFixture, event: str) -> None:
    while event not in [each.getMessage() for each in caplog.records]:  # noqa: ASYNC110 (the log has no event)
        await asyncio.sleep(0)


def test_part_that_cannot_be_started_is_tried_again_and_the_broker_stops_in_order(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, child_processes.__name__)
    monkeypatch.setattr(child_processes, "_DELAYS_MS", (0,))

    async def run() -> None:
        part = ChildProcess("registry", ["/no/such/program"], FakeClock(), 1)
        part.start()
        await until_logged(caplog, "part.not_started")
        caplog.clear()
        await until_logged(caplog, "part.not_started")
        await part.stop()

    asyncio.run(run())


def test_part_is_asked_to_end_by_a_line_and_by_the_end_of_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is not in the terminal's group, whose Ctrl-C is for the broker."""
    program = "import os, sys; sys.exit(7 if sys.stdin.read() == 'end\\n' and os.getsid(0) == os.getpid() else 8)"
    statuses: list[int | None] = []
    create: Any = asyncio.create_subprocess_exec

    async def run() -> None:
        started = asyncio.Event()
        processes: list[asyncio.subprocess.Process] = []

        async def seen(*words: str, **options: Any) -> asyncio.subprocess.Process:
            processes.append(await create(*words, **options))
            started.set()
            return processes[-1]

        monkeypatch.setattr(asyncio, "create_subprocess_exec", seen)
        part = ChildProcess("audit", [sys.executable, "-c", program], FakeClock(), 60)
        part.start()
        await started.wait()
        await asyncio.sleep(0)
        await part.stop()
        statuses.extend(each.returncode for each in processes)

    asyncio.run(run())
    assert statuses == [7]
