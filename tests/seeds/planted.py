"""Planted bugs, which a simulation must find.  The product has no switches for them: they are patched in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
from unittest.mock import patch

P = TypeVar("P")

# The owner, the name of the replaced attribute, and its replacement.
Patch: TypeAlias = tuple[Any, str, Any]


class Mutant(NamedTuple, Generic[P]):
    """`patches`: what is replaced.  `plan` changes a seed's plan: the bug may require faults that are rare."""

    bug: str
    patches: tuple[Patch, ...]
    plan: Callable[[P], P]
    # Where the bug was known before.
    reference: str = ""


@contextmanager
def planted(patches: Iterable[Patch]) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, replacement in patches:
            stack.enter_context(patch.object(owner, name, replacement))
        yield
