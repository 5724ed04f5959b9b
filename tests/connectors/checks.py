"""The checks that need only the members' journals: they apply to a group of any home."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from ottla.model.identifiers import TopicPartition
from tests.connectors.journal import Handed, Sent
from tests.connectors.progress import Disturbance, Progress
from tests.connectors.verdict import Verdict, Wrong

# Operations that started before a member was killed or resumed may show in other journals for this long afterwards.
AFTERMATH_NS: Final = 20 * 10**9


def check_delivery(group: str, progress: Progress, sent: Sequence[Sent], verdict: Verdict) -> None:
    """Every acknowledged message is delivered at least once."""
    places = {each.value: (each.topic, each.partition, each.offset) for each in sent}
    verdict.figures["acknowledged"] = len(places)
    for value in places.keys() - progress.values:
        verdict.add(Wrong.NOT_DELIVERED, f"{group}: {value} at {places[value]}")
    values: dict[tuple[str, int, int], str] = {}
    for handed in progress.handed.values():
        verdict.figures["handed_out"] += len(handed)
        for each in handed:
            place = each.topic, each.partition, each.offset
            known = values.setdefault(place, each.value)
            if known != each.value or places.get(each.value, place) != place:
                verdict.add(Wrong.OTHER_VALUE, f"{group}: {each.member} was handed {each.value} at {place}")


def check_owners(group: str, progress: Progress, disturbances: Sequence[Disturbance], verdict: Verdict) -> None:
    """While a stream continues with the next offset, no other stream delivers and commits that offset or a higher one.

    Had the other one owned the partition meanwhile, the offset would have been committed with its release.  Only a
    member that was killed or cut off may not have committed it.
    """
    for partition, handed in progress.handed.items():
        times = [each.got_ns for each in handed]
        asked_past = _asked_past(handed)
        for earlier, later in _followed(handed):
            between = handed[bisect_left(times, earlier.got_ns) : bisect_left(times, later.got_ns)]
            for other in between:
                if _source(other) == _source(earlier) or other.asked_ns <= earlier.got_ns:
                    continue
                # Offsets below the earlier one were committed when another stream got the partition.
                is_old = other.offset < earlier.offset
                if not is_old and (other.offset < later.offset or other not in asked_past):
                    continue
                may_be_excused = (earlier,) if is_old else (earlier, other)
                if any(_disturbed(disturbances, each.member, earlier.got_ns, later.got_ns) for each in may_be_excused):
                    continue
                verdict.add(
                    Wrong.DOUBLE_OWNER,
                    f"{group}: {partition} offset {other.offset} by {other.member} stream {other.stream} between "
                    f"{earlier.offset} and {later.offset} by {later.member} stream {later.stream}",
                )


def check_duplicates(group: str, progress: Progress, disturbances: Sequence[Disturbance], verdict: Verdict) -> None:
    """Processed messages are delivered again only if a member was killed, stopped or cut off since."""
    for partition, handed in progress.handed.items():
        asked_past = _asked_past(handed)
        latest: dict[int, Handed] = {}
        for each in handed:
            former = latest.get(each.offset)
            latest[each.offset] = each
            if former is None:
                continue
            verdict.figures["duplicates"] += 1
            is_past = former in asked_past
            if is_past and not _disturbed(disturbances, former.member, former.got_ns, each.got_ns):
                verdict.add(
                    Wrong.DUPLICATE,
                    f"{group}: {partition} offset {each.offset} by {former.member}, "
                    f"{(each.got_ns - former.got_ns) / 1e9:.3f} s later by {each.member}",
                )


def check_offsets(group: str, offsets: Mapping[TopicPartition, Sequence[int]], verdict: Verdict) -> None:
    """Committed offsets, in the order of commits, never decrease."""
    for partition, committed in offsets.items():
        verdict.figures["commits"] += len(committed)
        for earlier, later in pairwise(committed):
            if later < earlier:
                verdict.add(Wrong.OFFSET_WENT_BACK, f"{group}: {partition} from {earlier} to {later}")


def _source(handed: Handed) -> tuple[str, int]:
    return handed.member, handed.stream


def _followed(handed: Sequence[Handed]) -> Iterator[tuple[Handed, Handed]]:
    """Messages of a partition with consecutive offsets that one stream delivered one after the other."""
    by_source = sorted(handed, key=lambda each: (_source(each), each.got_ns))
    for earlier, later in pairwise(by_source):
        if _source(earlier) == _source(later) and later.offset == earlier.offset + 1:
            yield earlier, later


def _asked_past(handed: Sequence[Handed]) -> set[Handed]:
    """The messages after which the stream has delivered the next one."""
    return {earlier for earlier, _ in _followed(handed)}


def _disturbed(disturbances: Iterable[Disturbance], member: str, since_ns: int, until_ns: int) -> bool:
    """Whether a fault of that time, or shortly before it, may have cut this member off."""
    return any(
        each.member in (None, member) and each.began_ns <= until_ns and each.ended_ns + AFTERMATH_NS >= since_ns
        for each in disturbances
    )
