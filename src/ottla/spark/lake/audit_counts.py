"""A table's own counts for the audit: what its newest commits have loaded, told to the cluster that it was loaded from.

They are told from the table, never from memory, so that a process that dies between a commit and its counts loses none
of them while its commits are among the newest: the next one tells them.  To tell a commit again is harmless.
`ottla audit run --table` tells those of a whole history.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.audit.commits import load_counts
from ottla.audit.topic import publish
from ottla.client.wire.errors import ClientError
from ottla.observe.events import fields
from ottla.spark.lake.lake_table import LakeTable
from ottla.spark.options.connection import Connection
from ottla.spark.source.cluster_view import open_cluster

log = logging.getLogger(__name__)

# A load tells after each of its commits: one of it is untold when it dies, and others' commits may follow.
COMMITS_TOLD: Final = 20


def tell_counts(table: LakeTable, connection: Connection, commits_max: int = COMMITS_TOLD) -> None:
    """A cluster that does not take them now is no reason to stop a load: they are told with later ones."""
    counts = [
        count
        for each in table.newest_facts(commits_max)
        for count in load_counts(table.name, each.facts, each.committed_ms)
    ]
    if not counts:
        return
    try:
        with open_cluster(connection) as cluster:
            publish(cluster, counts)
    except ClientError as error:
        log.warning("lake.counts_deferred", extra=fields(table=table.name, reason=str(error)))
