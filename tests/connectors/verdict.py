"""The errors that the checks of groups find."""

from __future__ import annotations

from enum import StrEnum

from tests.tally import Tally


class Wrong(StrEnum):
    """Errors that must never happen."""

    NOT_DELIVERED = "an acknowledged message was not delivered to a group"
    OTHER_VALUE = "two values were handed out at one offset, or one that was acknowledged elsewhere"
    DOUBLE_OWNER = "two members handed out one partition at overlapping times"
    NOT_OWNED = "a message was handed out by a stream that did not own its partition at any time while it was asked for"
    OUT_OF_ORDER = "what an owner handed out did not begin where it should, or did not follow what it handed out before"
    DUPLICATE = "a processed message was delivered again, and no member was killed, stopped or cut off"
    OFFSET_WENT_BACK = "an owner's write set a committed offset back"
    NOT_FENCED = "an offset was written for a claim that the offset node did not have"
    COMMITTED_TOO_FAR = "an offset was committed before the messages below it were processed"
    RELEASED_SHORT = "a release did not write what was asked past"
    NOT_EMPTY = "after all members had left, an owner's or a consumer's node existed"


class Verdict(Tally[Wrong]):
    def __init__(self) -> None:
        super().__init__(Wrong)
