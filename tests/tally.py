"""Results of checks: a count for each kind of error, with examples, and the amount of checked data."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Final, Generic, TypeVar

EXAMPLES_MAX: Final = 5
Kind = TypeVar("Kind", bound=StrEnum)


class Tally(Generic[Kind]):
    """Filled by the checks.  A kind's value describes the error."""

    def __init__(self, kinds: type[Kind]) -> None:
        self.counts: Counter[Kind] = Counter()
        self.examples: dict[Kind, list[str]] = {}
        self.figures: Counter[str] = Counter()
        self._kinds = kinds

    def add(self, kind: Kind, example: str) -> None:
        self.counts[kind] += 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(example)

    @property
    def found(self) -> frozenset[Kind]:
        return frozenset(self.counts)

    @property
    def is_clean(self) -> bool:
        return not self.counts

    def __str__(self) -> str:
        """The figures, every count including zeros, and then the examples."""
        lines = [" ".join(f"{name}={value}" for name, value in self.figures.items())]
        lines += [f"  {self.counts[kind]:6d}  {kind.name.lower()}: {kind.value}" for kind in self._kinds]
        for kind, examples in self.examples.items():
            lines += [f"  {kind.name.lower()}: {example}" for example in examples]
        return "\n".join(lines)
