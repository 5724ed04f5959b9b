"""Subscriptions by regular expression: which topics a client's pattern matches (KIP-848; RE2's syntax).

A pattern is an untrusted program that runs on the event loop.  RE2 never backtracks: its time grows with the pattern
times the name.  But repetitions expand a short pattern to a large one, so its length, memory and matching time are
bounded, and so is the count of cached answers.  Python's `re` would let one member stop the broker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from time import thread_time
from typing import Final, NamedTuple, Protocol

from ottla.groups.topics_image import TopicsImage
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError

PATTERN_CHARS_MAX: Final = 4096
# RE2's memory limit for one pattern, compiled and while it matches.  With less, it falls back to a slower search.
PATTERN_MEMORY_BYTES_MAX: Final = 8 << 20
# CPU time of the thread for matching, independent of the machine's load.  Plain patterns take 2-4 us a name; 380
# characters whose states did not fit the memory took 27 ms.
MATCH_S_MAX: Final = 0.1
MATCH_NAME_S_MAX: Final = 0.00002
# Answers only; compiled patterns are not kept.
PATTERNS_KEPT_MAX: Final = 1024
SHOWN_CHARS_MAX: Final = 100


class _Answer(NamedTuple):
    topics: TopicsImage
    matching: frozenset[str]


class SubscriptionPatterns:
    """Cached answers: new topics are matched when they appear, the others never again."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, _Answer] = OrderedDict()

    def matching(self, pattern: str, topics: TopicsImage) -> frozenset[str]:
        """The names in `topics` that match as a whole.  Raises `RequestError` (INVALID_REGULAR_EXPRESSION)."""
        known = self._answers.get(pattern)
        if known is None:
            matching = matching_names(pattern, topics.by_name.keys())
        elif known.topics is topics:
            self._answers.move_to_end(pattern)
            return known.matching
        else:
            still_there = known.matching & topics.by_name.keys()
            added = topics.by_name.keys() - known.topics.by_name.keys()
            matching = frozenset(still_there | matching_names(pattern, added)) if added else frozenset(still_there)
        self._answers[pattern] = _Answer(topics, matching)
        self._answers.move_to_end(pattern)
        if len(self._answers) > PATTERNS_KEPT_MAX:
            self._answers.popitem(last=False)
        return matching


class _Compiled(Protocol):
    def fullmatch(self, text: bytes) -> object | None: ...


def matching_names(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Those that match as a whole.  Raises `RequestError` (INVALID_REGULAR_EXPRESSION)."""
    # Imported with the first pattern: most brokers never get one.
    import re2

    try:
        fullmatch = _compile(pattern).fullmatch
        matching = set()
        stop_at_s = thread_time() + MATCH_S_MAX
        for name in names:
            if fullmatch(name.encode()):
                matching.add(name)
            stop_at_s += MATCH_NAME_S_MAX
            if thread_time() > stop_at_s:
                raise _invalid(pattern, "it takes too long to match; use fewer and smaller repetitions")
        return frozenset(matching)
    finally:
        # The module caches compiled patterns, each with up to PATTERN_MEMORY_BYTES_MAX.
        re2.purge()


def _compile(pattern: str) -> _Compiled:
    import re2

    if len(pattern) > PATTERN_CHARS_MAX:
        raise _invalid(pattern, f"it has {len(pattern)} characters, {PATTERN_CHARS_MAX} are allowed")
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.log_errors = False
    options.never_capture = True  # a match needs no groups, and they make it slower
    if pattern.isascii():
        # Topic names are ASCII.  Classes such as \pL are then small: all of Unicode takes milliseconds to compile.
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        compiled: _Compiled = re2.compile(pattern.encode(), options)
    except re2.error as error:
        (reason,) = error.args
        raise _invalid(pattern, reason.decode(errors="replace") if isinstance(reason, bytes) else reason) from None
    return compiled


def _invalid(pattern: str, reason: str) -> RequestError:
    shown = pattern if len(pattern) <= SHOWN_CHARS_MAX else pattern[:SHOWN_CHARS_MAX] + "..."
    return RequestError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"the pattern {shown!r} is not a valid regular expression (RE2): {reason}",
    )
