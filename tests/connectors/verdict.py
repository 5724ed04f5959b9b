"""What the checks found: a count for each kind of wrong, with examples, and how much they looked at."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Final

EXAMPLES_MAX: Final = 5


class Wrong(StrEnum):
    """What must never be seen."""

    NOT_DELIVERED = "an acknowledged message was handed out by nobody of a group"
    OTHER_VALUE = "two values were handed out at one offset, or one that was acknowledged elsewhere"
    DOUBLE_OWNER = "two members handed out one partition at overlapping times"
    NOT_OWNED = "a message was handed out by a stream that did not own its partition at any time while it was asked for"
    OUT_OF_ORDER = "what an owner handed out did not begin where it should, or did not follow what it handed out before"
    DUPLICATE = "a message was handed out again that was asked past, and nobody was killed, stopped or cut off"
    OFFSET_WENT_BACK = "an owner's write set a committed offset back"
    NOT_FENCED = "an offset was written for a claim that the offset node did not have"
    COMMITTED_TOO_FAR = "an offset was committed before what lies below it was asked past"
    RELEASED_SHORT = "a release did not write what was asked past"
    NOT_EMPTY = "after everybody had left, an owner's or a consumer's node was there"


class Verdict:
    """Filled by the checks."""

    def __init__(self) -> None:
        self.counts: Counter[Wrong] = Counter()
        self.examples: dict[Wrong, list[str]] = {}
        self.figures: Counter[str] = Counter()

    def add(self, wrong: Wrong, example: str) -> None:
        self.counts[wrong] += 1
        examples = self.examples.setdefault(wrong, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(example)

    @property
    def found(self) -> frozenset[Wrong]:
        return frozenset(self.counts)

    @property
    def is_clean(self) -> bool:
        return not self.counts

    def __str__(self) -> str:
        """The figures, each kind of wrong with its count, those that are zero too, and examples."""
        lines = [" ".join(f"{name}={value}" for name, value in self.figures.items())]
        lines.append(" ".join(f"{wrong.name.lower()}={self.counts[wrong]}" for wrong in Wrong))
        for wrong, examples in self.examples.items():
            lines += [f"  {wrong.name.lower()} ({wrong.value}): {example}" for example in examples]
        return "\n".join(lines)
