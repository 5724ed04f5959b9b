"""Runs the command-line tools that Apache Kafka ships, by main class: against its own broker or against Ottla."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from tests.peers.kafka_jars import POM, TOOLS_POM, classpath, find_java

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
    # A small heap, as kafka-run-class.sh gives tools.  The C1 compiler alone starts short-lived tools faster.
    options = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dpeer.log.level=WARN")
    command = java_command(main_class, *arguments, jvm_options=options)
    return subprocess.run(
        command, input=input or "", capture_output=True, text=True, encoding="utf-8", timeout=timeout, check=False
    )
