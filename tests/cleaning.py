"""Cleans that a test runs by hand: to their end, with other work in between, or one blocking call at a time."""

from __future__ import annotations

from types import coroutine
from typing import TYPE_CHECKING, TypeVar

from ottla.runtime.offload import Offload, run_inline

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from ottla.storage.compaction.compactor import Compactor
    from ottla.storage.compaction.plan import CleanJob, CleanResult

T = TypeVar("T")


def run_clean(
    compactor: Compactor,
    job: CleanJob,
    results: Callable[[CleanJob], Iterable[CleanResult]],
    between: Callable[[], None] = lambda: None,
) -> None:
    """Run a clean to its end.  `between` is called before and after each blocking call of a swap."""
    for result in results(job):
        if not run_inline(compactor.apply_result(result, _Interleaved(between))):
            return


def blocking_calls(compactor: Compactor, result: CleanResult) -> Iterator[Callable[[], object]]:
    """`Compactor.take`: each of its blocking calls, for the test to make before it takes the next one."""
    return compactor.apply_result(result, _HandedOut()).__await__()


class _Interleaved(Offload):
    def __init__(self, between: Callable[[], None]) -> None:
        self._between = between

    async def __call__(self, work: Callable[[], T]) -> T:
        self._between()
        result = work()
        self._between()
        return result

    async def pause(self) -> None:
        self._between()


class _HandedOut(Offload):
    async def __call__(self, work: Callable[[], T]) -> T:
        await _hand_out(work)
        return work()  # a second time: a `DiskWork` does nothing then

    async def pause(self) -> None:
        return None


@coroutine
def _hand_out(work: Callable[[], object]) -> Generator[Callable[[], object], None, None]:
    yield work
