"""Audit: how many records of each topic passed each tier, by event-time window, and what is missing where.

Importing this starts nothing; a name is imported when it is first used.

Count, Report      a counter's message in the topic `ottla-audit`                    ottla.audit.count
Tally              one counter's counts, and its unpublished messages               ottla.audit.tally
AuditSnapshot      the newest message of each counter                               ottla.audit.snapshot
compare            loss, surplus and lateness of each tier and window               ottla.audit.comparison
completeness_of    until when a topic is complete, in event time                    ottla.audit.completeness
commit_counts      what one commit to a table or a mirror counts                   ottla.audit.commits
AuditTopic         the topic of counts                                              ottla.audit.topic
ProducerAudit      counts what brokers acknowledge to an `ottla.Producer`            ottla.audit.producers
AioProducerAudit   ... to an `ottla.aio.Producer`                                   ottla.audit.aio_producers
ConfluentProducer  ... to a `confluent_kafka.Producer`                              ottla.audit.confluent
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.audit.aio_producers import AioProducerAudit
    from ottla.audit.commits import commit_counts
    from ottla.audit.comparison import TierLine, compare
    from ottla.audit.completeness import Completeness, CompletenessRules, completeness_of
    from ottla.audit.confluent import ConfluentProducer
    from ottla.audit.count import Count, Report
    from ottla.audit.producers import ProducerAudit
    from ottla.audit.snapshot import AuditSnapshot
    from ottla.audit.tally import Tally
    from ottla.audit.topic import AuditTopic

__all__ = [
    "AioProducerAudit",
    "AuditSnapshot",
    "AuditTopic",
    "Completeness",
    "CompletenessRules",
    "ConfluentProducer",
    "Count",
    "ProducerAudit",
    "Report",
    "Tally",
    "TierLine",
    "commit_counts",
    "compare",
    "completeness_of",
]

# Where the public names are.
_HOMES: Final = {
    "AioProducerAudit": "ottla.audit.aio_producers",
    "AuditSnapshot": "ottla.audit.snapshot",
    "AuditTopic": "ottla.audit.topic",
    "Completeness": "ottla.audit.completeness",
    "CompletenessRules": "ottla.audit.completeness",
    "ConfluentProducer": "ottla.audit.confluent",
    "Count": "ottla.audit.count",
    "ProducerAudit": "ottla.audit.producers",
    "Report": "ottla.audit.count",
    "Tally": "ottla.audit.tally",
    "TierLine": "ottla.audit.comparison",
    "commit_counts": "ottla.audit.commits",
    "compare": "ottla.audit.comparison",
    "completeness_of": "ottla.audit.completeness",
}
# Names of earlier releases, for one more.
_OLD_NAMES: Final = {"AuditBook": "AuditSnapshot"}


def __getattr__(name: str) -> object:
    if name in _OLD_NAMES:
        new_name = _OLD_NAMES[name]
        warnings.warn(
            f"ottla.audit.{name} is named {new_name}; the next release is without the old name",
            DeprecationWarning,
            stacklevel=2,
        )
        name = new_name
    if name not in _HOMES:
        raise AttributeError(f"module 'ottla.audit' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
