"""The checks of groups in ZooKeeper: the deliveries of members, compared with all writes to the tree.

A message must have been delivered while its owner node existed.  The time of the delivery is between
the request and the return, so only a delivery that is wrong for that whole time is an error.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ottla.consumers.share import StreamId
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from tests.connectors.claims import End, GroupHistory, Ownership
from tests.connectors.journal import Handed, Joined, now_ns
from tests.connectors.progress import Progress
from tests.connectors.verdict import Verdict, Wrong

NS_PER_MS: Final = 1_000_000


@dataclass
class Clocks:
    """The offset of the wall clock, which the tree records, from the journals' clock; it is slewed a little."""

    apart_ns: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.apart_ns:
            self.compare()

    def compare(self) -> None:
        before_ns = now_ns()
        wall_ns = time.time_ns()
        self.apart_ns += [before_ns - wall_ns, now_ns() - wall_ns]

    def earliest_ns(self, wall_ms: int) -> int:
        return wall_ms * NS_PER_MS + min(self.apart_ns)

    def latest_ns(self, wall_ms: int) -> int:
        return (wall_ms + 1) * NS_PER_MS + max(self.apart_ns)


def check_group(
    group: str,
    history: GroupHistory,
    progress: Progress,
    joined: Mapping[str, Joined],
    clocks: Clocks,
    verdict: Verdict,
) -> None:
    """All checks of one group; `verdict` also gets its figures."""
    for wrong, found in ((Wrong.OFFSET_WENT_BACK, history.went_back), (Wrong.NOT_FENCED, history.not_fenced)):
        for example in found:
            verdict.add(wrong, f"{group}: {example}")
    for path in sorted(history.left_over):
        verdict.add(Wrong.NOT_EMPTY, path)
    verdict.figures["claims"] += history.claims_count
    verdict.figures["commits"] += history.commits_count
    verdict.figures["resets"] += history.resets_count
    members = _members(history, [each for each in joined.values() if each.group == group])
    asked_past_ns = _asked_past_ns(progress)
    for partition, handed in progress.handed.items():
        owned = history.ownerships.get(partition, [])
        for ownership, messages in _divide(group, partition, handed, owned, members, clocks, verdict):
            _check_order(group, partition, ownership, messages, verdict)
            _check_commits(
                f"{group}: {partition} by {ownership.stream}", ownership, messages, asked_past_ns, clocks, verdict
            )


def _members(history: GroupHistory, joined: Iterable[Joined]) -> dict[str, str]:
    """The member of each consumer id: both name the same process."""
    names = {each.pid: each.member for each in joined}
    return {consumer_id: names.get(node.pid, consumer_id) for consumer_id, node in history.consumers.items()}


def _divide(
    group: str,
    partition: TopicPartition,
    handed: Sequence[Handed],
    owned: Sequence[Ownership],
    members: Mapping[str, str],
    clocks: Clocks,
    verdict: Verdict,
) -> list[tuple[Ownership, list[Handed]]]:
    """The deliveries of each ownership; a delivery without one is an error."""
    began_ns = [clocks.earliest_ns(each.began_ms) for each in owned]
    found: list[tuple[Ownership, list[Handed]]] = [(each, []) for each in owned]
    for each in handed:
        # Newest first.  Of several possible ones, one that this offset fits.
        possible = []
        for index in reversed(range(bisect_right(began_ns, each.got_ns))):
            ownership = owned[index]
            if each.asked_ns > clocks.latest_ns(ownership.ended_ms):
                break
            if _is_stream(ownership.stream, each, members):
                possible.append(index)
        if not possible:
            where = f"{group}: {partition} offset {each.offset} by {each.member} stream {each.stream} at {each.got_ns}"
            verdict.add(Wrong.NOT_OWNED, f"{where}; owned by {_around(owned, began_ns, each)}")
            continue
        verdict.figures["in_doubt"] += len(possible) > 1
        fitting = (index for index in possible if _fits(*found[index], each))
        found[next(fitting, possible[0])][1].append(each)
    return found


def _is_stream(stream: StreamId, handed: Handed, members: Mapping[str, str]) -> bool:
    return members.get(stream.consumer_id) == handed.member and stream.number == handed.stream


def _fits(ownership: Ownership, messages: Sequence[Handed], handed: Handed) -> bool:
    if messages:
        return handed.offset == messages[-1].offset + 1
    return ownership.start in (NO_OFFSET, handed.offset)


def _around(owned: Sequence[Ownership], began_ns: Sequence[int], handed: Handed) -> str:
    index = bisect_right(began_ns, handed.got_ns)
    return str([(str(each.stream), each.began_ms, each.ended_ms) for each in owned[max(index - 2, 0) : index + 1]])


def _check_order(
    group: str, partition: TopicPartition, ownership: Ownership, messages: Sequence[Handed], verdict: Verdict
) -> None:
    """From the start of the claim, each offset once."""
    expected = ownership.start
    for each in messages:
        if expected not in (NO_OFFSET, each.offset):
            where = f"{group}: {partition} by {each.member} stream {each.stream}"
            verdict.add(Wrong.OUT_OF_ORDER, f"{where}: {each.offset} where {expected} should be")
        expected = each.offset + 1


def _asked_past_ns(progress: Progress) -> dict[Handed, int]:
    """When the next message, of any partition, was requested, if the stream has delivered it."""
    everything = sorted(
        (each for handed in progress.handed.values() for each in handed),
        key=lambda each: (each.member, each.stream, each.got_ns),
    )
    return {
        earlier: later.asked_ns
        for earlier, later in pairwise(everything)
        if (earlier.member, earlier.stream) == (later.member, later.stream)
    }


def _check_commits(
    where: str,
    ownership: Ownership,
    messages: Sequence[Handed],
    asked_past_ns: Mapping[Handed, int],
    clocks: Clocks,
    verdict: Verdict,
) -> None:
    """Committed offsets were processed by then; a release commits all processed ones."""
    verdict.figures["ended_with_session"] += ownership.end is End.SESSION
    if not messages:
        if ownership.last_offset > ownership.start != NO_OFFSET:
            verdict.add(Wrong.COMMITTED_TOO_FAR, f"{where}: {ownership.last_offset}, nothing was handed out")
        return
    by_next_offset = {each.offset + 1: each for each in messages}
    for at_ms, offset in ownership.commits:
        message = by_next_offset.get(offset)
        if message is not None and asked_past_ns.get(message, 0) > clocks.latest_ns(at_ms):
            verdict.add(Wrong.COMMITTED_TOO_FAR, f"{where}: {offset} at {at_ms}, asked past only later")
    last = messages[-1].offset
    if not ownership.was_reset and ownership.last_offset > last + 1:
        verdict.add(Wrong.COMMITTED_TOO_FAR, f"{where}: {ownership.last_offset}, handed out {last} last")
    if ownership.end is End.RELEASED and not ownership.was_reset and ownership.last_offset < last:
        verdict.add(Wrong.RELEASED_SHORT, f"{where}: {ownership.last_offset}, though {last} was asked for")
