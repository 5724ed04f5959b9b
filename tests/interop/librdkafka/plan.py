"""Which of librdkafka's tests run, in which modes, and the settings of their brokers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from tests.interop.expected_failures import Entry
from tests.interop.librdkafka.runner import Job
from tests.peers.either_broker import BrokerKind
from tests.peers.java_tool import ACL_COMMAND, TOPIC_COMMAND, java_command
from tests.peers.kafka_jars import find_java, install


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# The tests expect four partitions of an automatically created topic, and time-outs without Kafka's three seconds
# before a group's first round.
SETTINGS: Final = {"num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
NO_AUTO_CREATE: Final = {**SETTINGS, "auto.create.topics.enable": "false"}

# Every test that uses a broker, except those that CI leaves out or that OUT_OF_SCOPE names.
NUMBERS: Final = _names(
    "0001 0002 0003 0005 0007 0008 0011 0012 0013 0014 0015 0016 0017 0018 0019 0020 0021 0022 0026 0029 0030 "
    "0031 0034 0035 0036 0038 0039 0040 0041 0042 0044 0045 0048 0050 0051 0052 0053 0054 0055 0056 0057 0059 0060 "
    "0061 0063 0064 0065 0067 0068 0069 0070 0073 0077 0083 0085 0086 0089 0090 0099 0102 0110 0112 0113 0118 0122 "
    "0125 0127 0130 0132 0137 0140 0150"
)
# Those of transactional producers and of readers of their records; 0098 runs a producer of Java some thirty times.
TRANSACTIONS: Final = ("0098", "0103", "0129")
# The quick mode of these leaves out parts, of most of them every one, and they pass all the same.
WHOLE: Final = frozenset(_names("0018 0019 0022 0026 0030 0050 0055 0061 0089 0094 0098 0103 0122 0127 0132 0137"))
# A quarter of a minute and more each: not in CI.
LONG: Final = ("0033", "0049", "0075", "0076", "0084", "0088", "0091", "0093", "0094", "0114", "0123")
# The parts of test 0081, which would end at its first failure; those of ACLs and SCRAM users are left out.
ADMIN: Final = _names(
    "CreateTopics DeleteTopics CreatePartitions AlterConfigs IncrementalAlterConfigs DescribeConfigs "
    "DescribeConfigs_groups DeleteRecords ListConsumerGroups DescribeConsumerGroups DescribeTopics "
    "DescribeCluster DeleteGroups DeleteConsumerGroupOffsets ListOffsets AlterConsumerGroupOffsets "
    "ListConsumerGroupOffsets"
)
OUT_OF_SCOPE: Final = {
    "0082": "its own quick mode leaves it out",
    "0092": "message formats that Apache Kafka 4 removed",
    "0097": "expects that TLS names the authorities of client certificates, which Python's does not",
    "0101": "several brokers",
    "0109": "access rules",
    "0115": "access rules",
    "0126": "a runner that is built with libcurl",
    "0133": "the client's own keys, without a broker",
    "0107": "topics with three replicas",
    "0111": "topics with three replicas",
}
# Once more with `group.protocol=consumer` (KIP-848).
CONSUMER_PROTOCOL: Final = _names(
    "0018 0022 0026 0029 0030 0040 0044 0045 0050 0051 0060 0064 0065 0069 0083 0089 0099 0102 0112 0113 0118 "
    "0122 0127 0130 0132 0137 0140 0153"
)
# On a broker that creates no topics automatically.
WITHOUT_AUTO_CREATE: Final = ("0045",)
LONG_WITH_CONSUMER_PROTOCOL: Final = ("0033", "0049", "0084", "0093")
# They call kafka-topics.sh.
NEED_KAFKA_TOOLS: Final = frozenset({"0045", "0052", "0077", "0098"})

# With access rules or a login; 0142's parts that produce and consume, since the others have transactions.
SECURE: Final = (
    Job("0119"),
    Job("0135"),
    *(Job("0142", f"@{part}", environment=(("SUBTESTS", f"do_test_{part}:"),)) for part in ("producer", "consumer")),
)
WITH_LOGIN: Final = frozenset({"0135", "0142"})
CONSUMER: Final = "@consumer"
NO_TOPICS: Final = "@noautocreate"


def jobs(*, with_long: bool) -> list[Job]:
    """The jobs on a broker with SETTINGS, slow ones first, so that they do not run alone at the end."""
    classic = (*LONG, *NUMBERS) if with_long else NUMBERS
    consumer = (*LONG_WITH_CONSUMER_PROTOCOL, *CONSUMER_PROTOCOL) if with_long else CONSUMER_PROTOCOL
    protocol = (("TEST_CONSUMER_GROUP_PROTOCOL", "consumer"),)
    return [
        *(Job(number, is_quick=number not in WHOLE) for number in (*TRANSACTIONS, *classic)),
        *(Job(number, CONSUMER, environment=protocol, is_quick=number not in WHOLE) for number in consumer),
        *(Job("0081", f"@{part}", environment=(("SUBTESTS", f"do_test_{part}:"),)) for part in ADMIN),
    ]


def jobs_without_auto_create() -> list[Job]:
    return [Job(number, NO_TOPICS, scenario="noautocreate") for number in WITHOUT_AUTO_CREATE]


def entries_of(job: Job, entries: list[Entry], broker: BrokerKind) -> list[Entry]:
    return [entry for entry in entries if broker in entry.brokers and job.is_of(entry.test)]


def write_kafka_tools(directory: Path) -> dict[str, str]:
    """Write the scripts of Apache Kafka that the tests call; return the environment with their path.

    Raises KafkaUnavailable.
    """
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    (directory / "bin").mkdir()
    for name, main_class in (("kafka-topics.sh", TOPIC_COMMAND), ("kafka-acls.sh", ACL_COMMAND)):
        command = shlex.join(java_command(main_class, jvm_options=options))
        _write_script(directory / "bin" / name, f'exec {command} "$@"')
    # A program of the tests, which they compile with the client's jar: they give its directory in CLASSPATH.
    jars = install()
    (directory / "libs").symlink_to(jars)
    run_class = f'exec {shlex.join((find_java(), *options))} -cp "$CLASSPATH:{jars}/*" "$@"'
    _write_script(directory / "bin" / "kafka-run-class.sh", run_class)
    return {"KAFKA_PATH": str(directory)}


def _write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
