"""Planted bugs, which a simulation must find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias
from unittest.mock import patch

from tests.seeds.search import Violation

# The owner, the name of the replaced attribute, and its replacement.
Patch: TypeAlias = tuple[Any, str, Any]
# The number of seeds until a guarantee broke, and which one; None: none did.
Killed: TypeAlias = tuple[int, str] | None


@contextmanager
def planted(patches: Iterable[Patch]) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, replacement in patches:
            stack.enter_context(patch.object(owner, name, replacement))
        yield


def seeds_needed(patches: Iterable[Patch], run: Callable[[int], object], seeds_max: int, first_seed: int) -> Killed:
    """The number of seeds until a guarantee breaks, and which one; None when none does."""
    with planted(patches):
        for seed in range(first_seed, first_seed + seeds_max):
            try:
                run(seed)
            except Violation as violation:
                return seed - first_seed + 1, str(violation)
    return None
