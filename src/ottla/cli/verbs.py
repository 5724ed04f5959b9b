"""The verbs, by name: the command and the line in `ottla --help` of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Verb(NamedTuple):
    """`command` is the name of a click command in `module`."""

    module: str
    about: str
    command: str = "command"
    # It is called by its name of earlier releases, too.
    formerly: str | None = None


class Family(NamedTuple):
    """Verbs below a verb."""

    about: str
    verbs: Mapping[str, Verb]


_REGISTRY: Final[Mapping[str, Verb]] = {
    "serve": Verb("ottla.cli.pipeline.registry", "Run a schema registry over any Kafka cluster.", "serve"),
}

_TESTING: Final[Mapping[str, Verb]] = {
    "serve": Verb("ottla.cli.testing", "Run a broker at a fixed port until the tests have ended.", "serve"),
    "run": Verb("ottla.cli.testing", "Run a command beside its own broker.", "run"),
}

_SECURE: Final[Mapping[str, Verb]] = {
    "init": Verb("ottla.cli.secure.init", "Make a CA, a certificate, and the files of a broker."),
    "token": Verb("ottla.cli.secure.token", "Make a token by which another broker joins a secured cluster."),
    "join": Verb("ottla.cli.secure.join", "Make the files of a broker from a token."),
}

_CLUSTER: Final[Mapping[str, Verb]] = {
    "up": Verb("ottla.cli.cluster.up", "Run ZooKeeper and several brokers on this machine."),
    "adopt": Verb("ottla.cli.cluster.adopt", "Make a standalone broker the first one of a cluster."),
    "protect": Verb("ottla.cli.cluster.protect", "Close a tree in ZooKeeper to all but the brokers."),
    "rejoin": Verb("ottla.cli.cluster.rejoin", "Accept a stale copy of a data directory, which the others refill."),
    "status": Verb("ottla.cli.cluster.status", "Show brokers, leaders, replicas that lag, and ZooKeeper's health."),
    "plan": Verb("ottla.cli.cluster.moves", "Show the moves that would spread replicas evenly.", "plan"),
    "rebalance": Verb("ottla.cli.cluster.moves", "Spread replicas evenly over brokers and racks.", "rebalance"),
    "drain": Verb("ottla.cli.cluster.moves", "Move everything off a broker.", "drain"),
}

_AUDIT: Final[Mapping[str, Verb]] = {
    "status": Verb(
        "ottla.cli.pipeline.audit", "Show what each tier has counted, and until when topics are complete.", "status"
    ),
    "wait": Verb("ottla.cli.pipeline.audit", "Wait until a topic is complete; for batch jobs.", "wait"),
    "lost-offsets": Verb(
        "ottla.cli.pipeline.audit",
        "Show the ranges that readers could not read, and why.",
        "lost_offsets",
        formerly="ledger",
    ),
    "run": Verb("ottla.cli.pipeline.audit", "Compare all tiers on Spark, into a table and a topic.", "run"),
}

_LAKE: Final[Mapping[str, Verb]] = {
    "erase": Verb("ottla.cli.pipeline.lake", "Erase the rows of a key from a lake table.", "erase"),
}

VERBS: Final[Mapping[str, Verb | Family]] = {
    "serve": Verb("ottla.cli.serve", "Run a broker."),
    "profile": Verb("ottla.cli.profile", "Name clusters with addresses and logins, and choose one."),
    "topic": Verb("ottla.cli.topic.verb", "Create, list, describe, alter, delete topics; their records."),
    "produce": Verb("ottla.cli.records.produce", "Write lines of standard input, or of a file, to a topic."),
    "consume": Verb("ottla.cli.records.consume", "Write records of topics to standard output."),
    "group": Verb("ottla.cli.group.verb", "List, describe, move and delete groups of consumers."),
    "top": Verb("ottla.cli.top.verb", "Show the rates of topics and groups, again and again."),
    "transaction": Verb("ottla.cli.transaction", "List and describe transactions; find and end those that hang."),
    "config": Verb("ottla.cli.config", "Show, set and delete settings of topics, brokers and groups."),
    "secure": Family("Make certificates and a first user; let brokers join.", _SECURE),
    "user": Verb("ottla.cli.user", "Set, delete and list the users that log in."),
    "acl": Verb("ottla.cli.acl", "Add, remove and list access rules."),
    "quota": Verb("ottla.cli.quota", "Set, remove and list quotas of users, clients and addresses."),
    "log": Verb("ottla.cli.log.verb", "Dump, verify and repair logs; import those of Apache Kafka."),
    "backup": Verb("ottla.cli.log.backup", "Copy a broker's data directory, also while it runs.", "backup"),
    "restore": Verb("ottla.cli.log.backup", "Make a data directory of a backup.", "restore"),
    "cluster": Family("Run a cluster on this machine; show how a cluster is.", _CLUSTER),
    "load": Verb("ottla.cli.pipeline.load_verb", "Load topics into a lake table, exactly once."),
    "lake": Family("Erase rows of lake tables.", _LAKE),
    "registry": Family("Serve schemas to Kafka's clients.", _REGISTRY),
    "stream": Verb("ottla.cli.pipeline.stream", "Run streams of events: windows, sessions, joins."),
    "dead-letter": Verb(
        "ottla.cli.pipeline.dead_letter", "Show, put back and erase records that could not be processed."
    ),
    "mirror": Verb("ottla.cli.pipeline.mirror", "Copy topics from one cluster to another."),
    "audit": Family("Compare counts of all tiers; wait until a topic is complete.", _AUDIT),
    "spark-archive": Verb("ottla.cli.pipeline.spark_archive", "Pack what the workers of a Spark cluster need."),
    "testing": Family("Run a broker for tests, in any language.", _TESTING),
    "doctor": Verb("ottla.cli.doctor.verb", "Check settings, address, disk and limits."),
    "systemd-unit": Verb("ottla.cli.systemd_unit", "Print a systemd unit that runs the broker."),
    "demo": Verb("ottla.cli.demo", "A day at a small LinkedIn, end to end on this machine."),
}
