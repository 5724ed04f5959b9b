"""The newest message of each counter in the topic `ottla-audit`, read in any order."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.audit.count import AuditMessage, Count, CountKey, Report, ReportKey


class AuditSnapshot:
    """Messages may be applied again, and in any order: the result is the same."""

    def __init__(self, messages: Iterable[AuditMessage] = ()) -> None:
        self._counts: dict[CountKey, Count] = {}
        self._reports: dict[ReportKey, Report] = {}
        for message in messages:
            self.apply(message)

    def apply(self, message: AuditMessage) -> None:
        if isinstance(message, Count):
            known = self._counts.get(message.key)
            if known is None or _count_rank(known) < _count_rank(message):
                self._counts[message.key] = message
        else:
            reported = self._reports.get(message.key)
            if reported is None or _report_rank(reported) < _report_rank(message):
                self._reports[message.key] = message

    @property
    def counts(self) -> list[Count]:
        return list(self._counts.values())

    @property
    def reports(self) -> list[Report]:
        return list(self._reports.values())

    @property
    def topics(self) -> list[str]:
        return sorted({key.topic for key in self._counts} | {key.topic for key in self._reports})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AuditSnapshot) and (self._counts, self._reports) == (other._counts, other._reports)

    __hash__ = None  # type: ignore[assignment]


# A counter sends one message of each sequence.  Between others of that sequence the reading order must not decide.


def _count_rank(count: Count) -> tuple[int, ...]:
    return count.sequence, count.records, count.late_records, count.last_seen_ms


def _report_rank(report: Report) -> tuple[int, int, bool, int]:
    return report.sequence, report.until_ms, report.has_ended, report.counters_count
