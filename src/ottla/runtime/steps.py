"""Long work in short steps: a generator that yields wherever others may run, and returns its result.

It is run at once by `run_steps` where it is known to be short, and with pauses by `loop_offload.paced`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]


def parts_of(elements: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    """The elements in their order, so many at a time."""
    return (elements[start : start + count] for start in range(0, len(elements), count))


def run_steps(steps: Steps[T]) -> T:
    """All steps, without a pause."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
