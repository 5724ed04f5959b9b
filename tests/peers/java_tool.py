"""Runs the command-line tools that Apache Kafka ships, by main class: against its own broker or against Ottla."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.peers.class_archives import archive_path, make_archive, options_of
from tests.peers.kafka_jars import POM, TOOLS_POM, classpath, find_java, install

LOGGING: Final = Path(__file__).with_name("log4j2.properties")

ACL_COMMAND: Final = "org.apache.kafka.tools.AclCommand"
BROKER: Final = "kafka.Kafka"
CONFIGS_COMMAND: Final = "kafka.admin.ConfigCommand"
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER_GROUPS_COMMAND: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER_PERFORMANCE: Final = "org.apache.kafka.tools.ConsumerPerformance"
DUMP_LOG_SEGMENTS: Final = "org.apache.kafka.tools.DumpLogSegments"
GET_OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"
LEADER_ELECTION_COMMAND: Final = "org.apache.kafka.tools.LeaderElectionCommand"
LOG_DIRS_COMMAND: Final = "org.apache.kafka.tools.LogDirsCommand"
PRODUCER_PERFORMANCE: Final = "org.apache.kafka.tools.ProducerPerformance"
REASSIGN_PARTITIONS_COMMAND: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
STORAGE_TOOL: Final = "kafka.tools.StorageTool"
TOPIC_COMMAND: Final = "org.apache.kafka.tools.TopicCommand"
TRANSACTIONAL_COPIER: Final = "org.apache.kafka.tools.TransactionalMessageCopier"
TRANSACTIONS: Final = "org.apache.kafka.tools.TransactionsCommand"

# Classes of the broker's release; all others are of the tools' release.
OF_THE_BROKER: Final = frozenset({BROKER, STORAGE_TOOL})

# DumpLogSegments 4.3 takes -1 for the offset before a segment's first record, and reports each segment that starts
# later than 0.
_START_OF_SEGMENT: Final = re.compile(r"^Non-consecutive offsets in \S*/0*(\d+)\.log\n +-1 is followed by \1\n", re.M)


def dump_complaints(errors: str) -> str:
    """What DumpLogSegments writes to standard error, without the starts of segments."""
    return _START_OF_SEGMENT.sub("", errors)


# A small heap, as kafka-run-class.sh gives tools.  The C1 compiler alone starts short-lived tools faster.
TOOL_OPTIONS: Final = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dpeer.log.level=WARN")
# No server listens there: an administrator is made, with its classes, and fails.
_NO_SERVER: Final = ("--bootstrap-server", "127.0.0.1:1", "--list", "--timeout", "1000")


def java_command(main_class: str, *arguments: str, jvm_options: tuple[str, ...] = ()) -> list[str]:
    """The command line that starts a class of Apache Kafka.  Raises KafkaUnavailable where it is unavailable."""
    logging = f"-Dlog4j2.configurationFile={LOGGING}"
    pom = POM if main_class in OF_THE_BROKER else TOOLS_POM
    return [find_java(), *jvm_options, logging, "-cp", classpath(pom), main_class, *arguments]


def run_tool(
    main_class: str, *arguments: str, input: str | None = None, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run one tool to its end; its status, output and errors (UTF-8) are in the result, also after a failure.

    `input` goes to its standard input (empty without it).  After `timeout` seconds it is killed and
    subprocess.TimeoutExpired raised.
    """
    options = (*TOOL_OPTIONS, *options_of(classes_of(main_class)))
    command = java_command(main_class, *arguments, jvm_options=options)
    return subprocess.run(
        command, input=input or "", capture_output=True, text=True, encoding="utf-8", timeout=timeout, check=False
    )


def classes_of(main_class: str) -> Path:
    """The archive of its classes, which may not exist: beside its jars."""
    pom = POM if main_class in OF_THE_BROKER else TOOLS_POM
    return archive_path(install(pom).parent, install(pom).name, Path(find_java()))


def archive_tools() -> None:
    """Archive the tools' classes, most of which are an administrator's.  Raises KafkaUnavailable."""

    def run(options: Sequence[str]) -> str:
        command = java_command(CONSUMER_GROUPS_COMMAND, *_NO_SERVER, jvm_options=(*TOOL_OPTIONS, *options))
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=240, check=False)
        return classpath(TOOLS_POM)

    make_archive(classes_of(CONSUMER_GROUPS_COMMAND), Path(find_java()), run)
