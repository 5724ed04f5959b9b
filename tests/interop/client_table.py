"""The test that shows each feature of each client; the table of docs/compatibility.md is generated from this.

python -m tests.interop.client_table     prints it
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

FEATURES: Final = (
    "produce",
    "consume",
    "classic group",
    "KIP-848",
    "transactional producer",
    "admin",
    "compression",
    "headers",
)
NONE: Final = "-"

_CROSS: Final = "test_cross_reading.py::test_every_library_reads_the_records_of_one"
_KCAT: Final = "test_kcat.py::test_every_library_reads_the_records_of_kcat"
_PROGRAMS: Final = "clients/test_other_languages.py"
_TOOLS: Final = "test_apache_tools.py"
_GROUP_TOOLS: Final = "clients/test_apache_group_tools.py"
_SPARK: Final = "clients/test_spark_connector.py::test_spark_connector_is_served"
_TRANSACTIONS: Final = "test_transactional_clients.py"
_JAVA_TRANSACTIONS: Final = "test_transactions.py::test_java_producer_commits_and_its_tool_shows_the_transactional_id"
_GROUPS: Final = "test_groups.py::test_members_of_a_group_share_the_partitions_and_read_each_record_once"


# The scenario names of the features in the programs of `clients`.
_SCENARIOS: Final = (
    "produce",
    "produce",
    "classic-group",
    "consumer-group",
    "transactions",
    "admin",
    "compression",
    "headers",
)


def _program(test: str, of: str = _PROGRAMS) -> dict[str, str]:
    return {feature: f"{of}::{test}[{scenario}]" for feature, scenario in zip(FEATURES, _SCENARIOS, strict=True)}


def _javascript(test: str, without: tuple[str, ...] = ()) -> dict[str, str]:
    cells = _program(test, "clients/test_javascript_clients.py")
    return {feature: cell for feature, cell in cells.items() if feature not in without}


# Client -> feature -> the test below tests/interop.  A missing feature is one that the client does not have.
TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    "confluent-kafka 2.16 (librdkafka)": {
        "produce": f"{_CROSS}[confluent-none]",
        "consume": f"{_CROSS}[confluent-none]",
        "classic group": f"{_GROUPS}[range]",
        "KIP-848": f"{_GROUPS}[consumer]",
        "transactional producer": f"{_TRANSACTIONS}::test_loop_of_confluent_kafka_processes_each_record_once[ottla]",
        "admin": "test_confluent_kafka.py::test_confluent_kafka_administers_topics",
        "compression": "test_confluent_kafka.py::test_confluent_kafka_sends_idempotently[lz4]",
        "headers": f"{_CROSS}[confluent-zstd]",
    },
    "kafka-python 3.0": {
        "produce": "test_kafka_python.py::test_kafka_python_reads_the_records_that_it_sent[idempotent]",
        "consume": "test_kafka_python.py::test_kafka_python_reads_the_records_that_it_sent[plain]",
        "classic group": "test_group_clients.py::test_kafka_python_members_share_a_topic_and_resume",
        "transactional producer": f"{_TRANSACTIONS}::"
        "test_transactions_of_kafka_python_are_committed_with_their_offsets_or_aborted[ottla]",
        "admin": "test_kafka_python.py::test_kafka_python_describes_the_cluster",
        "compression": f"{_CROSS}[kafka-python-lz4]",
        "headers": f"{_CROSS}[kafka-python-zstd]",
    },
    "aiokafka 0.14": {
        "produce": "test_aiokafka.py::test_aiokafka_sends_idempotently[none]",
        "consume": f"{_CROSS}[aiokafka-none]",
        "classic group": "test_group_clients.py::test_aiokafka_members_share_a_topic_and_resume",
        "transactional producer": f"{_TRANSACTIONS}::"
        "test_transactions_of_aiokafka_are_committed_with_their_offsets_or_aborted[ottla]",
        "admin": "test_aiokafka.py::test_aiokafka_administers_topics",
        "compression": "test_aiokafka.py::test_aiokafka_sends_idempotently[lz4]",
        "headers": f"{_CROSS}[aiokafka-zstd]",
    },
    "Java 3.9": _program("test_java_client_3_9_is_served"),
    "Java 4.4": _program("test_java_client_4_4_is_served"),
    "franz-go 1.22": _program("test_franz_go_is_served"),
    "kafkajs 2.2": _javascript("test_kafkajs_is_served", without=("KIP-848",)),
    "@platformatic/kafka 1.35": _javascript("test_platformatic_kafka_is_served"),
    "kcat 1.7 (librdkafka 2.0)": {
        "produce": f"{_KCAT}[none]",
        "consume": "test_cross_reading.py::test_kcat_reads_the_records_of_a_library[confluent-none]",
        "classic group": "test_group_clients.py::test_kcat_reads_as_a_member_of_a_group",
        "admin": "test_kcat.py::test_kcat_lists_brokers_and_topics",
        "compression": f"{_KCAT}[lz4]",
        "headers": f"{_KCAT}[zstd]",
    },
    "Spark's Kafka connector 4.2": {
        "produce": f"{_SPARK}[batch]",
        "consume": f"{_SPARK}[streaming]",
        "compression": f"{_SPARK}[compression]",
        "headers": f"{_SPARK}[headers]",
    },
    "kafka-console-producer 4.3": {
        "produce": f"{_TOOLS}::test_console_producer_writes_keys_headers_nulls_and_large_values[none]",
        "compression": f"{_TOOLS}::test_console_producer_writes_keys_headers_nulls_and_large_values[zstd]",
        "headers": f"{_TOOLS}::test_console_producer_writes_keys_headers_nulls_and_large_values[lz4]",
    },
    "kafka-console-consumer 4.3": {
        "consume": f"{_TOOLS}::test_console_consumer_reads_every_codec_by_partition",
        "classic group": f"{_GROUP_TOOLS}::test_console_consumer_reads_as_a_member_and_resumes[classic]",
        "KIP-848": f"{_GROUP_TOOLS}::test_console_consumer_reads_as_a_member_and_resumes[consumer]",
        "compression": f"{_GROUP_TOOLS}::test_console_consumer_reads_every_codec_in_a_group",
        "headers": f"{_TOOLS}::test_console_consumer_reads_every_codec_by_partition",
    },
    "kafka-producer-perf-test 4.3": {
        "produce": f"{_TOOLS}::test_producer_performance_is_served_with_its_defaults",
        "transactional producer": _JAVA_TRANSACTIONS,
    },
    "kafka-consumer-perf-test 4.3": {
        "consume": f"{_GROUP_TOOLS}::test_consumer_perf_test_measures_all_records[classic]",
        "classic group": f"{_GROUP_TOOLS}::test_consumer_perf_test_measures_all_records[classic]",
        "KIP-848": f"{_GROUP_TOOLS}::test_consumer_perf_test_measures_all_records[consumer]",
    },
    "kafka-topics 4.3": {"admin": f"{_TOOLS}::test_topic_command_creates_describes_lists_and_deletes"},
    "kafka-get-offsets 4.3": {"admin": f"{_TOOLS}::test_get_offsets_shows_the_ends_of_a_partition"},
    "kafka-consumer-groups 4.3": {
        "classic group": f"{_GROUP_TOOLS}::test_consumer_groups_lists_describes_resets_and_deletes[classic]",
        "KIP-848": f"{_GROUP_TOOLS}::test_consumer_groups_lists_describes_resets_and_deletes[consumer]",
        "admin": f"{_GROUP_TOOLS}::test_consumer_groups_lists_describes_resets_and_deletes[classic]",
    },
    "kafka-configs 4.3": {"admin": f"{_GROUP_TOOLS}::test_configs_command_alters_and_describes_a_topic"},
    "kafka-transactions 4.3": {"admin": _JAVA_TRANSACTIONS},
    "kafka-log-dirs 4.3": {"admin": f"{_GROUP_TOOLS}::test_log_dirs_command_shows_the_bytes_of_a_topic"},
}


def rendered() -> str:
    """The table in Markdown; each cell links to the file of its test."""
    lines = ["| client | " + " | ".join(FEATURES) + " |", "| --- |" + " --- |" * len(FEATURES)]
    for client, cells in TABLE.items():
        row = [_cell(cells[feature]) if feature in cells else NONE for feature in FEATURES]
        lines.append(f"| {client} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _cell(test: str) -> str:
    return f"[yes](../tests/interop/{test.partition('::')[0]})"


if __name__ == "__main__":
    sys.stdout.write(rendered())
