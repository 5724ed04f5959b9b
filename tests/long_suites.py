"""The long tests that `./dev test` leaves out and `./dev suites` runs: they get the mark `suite`.

Each has a shorter relative that stays in `./dev test`: the same mechanism on fewer cases, or the judgement alone.
tests/README.md shows this table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import pytest

SUITE_MARK: Final = "suite"
# The node ids of all tests that this run has collected, also of those that it does not select.
COLLECTED: Final = pytest.StashKey[tuple[str, ...]]()


class LongSuite(NamedTuple):
    """`tests` and `stays` are starts of node ids, in which `*` is any text."""

    tests: tuple[str, ...]
    stays: tuple[str, ...]
    reason: str


# Contract tests of what a tree holds, which run in each home of a tree.
_REGISTRIES: Final = (
    "acl_registry",
    "assignments",
    "configs",
    "consumer_registry",
    "group_admin",
    "registries",
    "topic_writes",
    "topics",
)
LONG_SUITES: Final = (
    LongSuite(
        ("tests/interop/librdkafka/test_librdkafka.py::test_librdkafka_tests_pass_or_fail_as_listed",),
        (
            "tests/interop/test_confluent_kafka.py",
            "tests/interop/test_group_clients.py",
            "tests/interop/test_groups.py",
        ),
        "librdkafka's own suite of 116 jobs and its build; its client produces, fetches and joins groups in what stays",
    ),
    LongSuite(
        (
            "tests/interop/franz_go/test_franz_go.py::test_kgo_tests_pass_or_fail_as_listed",
            "tests/interop/franz_go/test_franz_go.py::test_kgo_tests_log_in",
            "tests/interop/exactly_once/test_streams.py",
            "tests/interop/exactly_once/test_flink.py",
            "tests/interop/test_transactional_clients.py::*[apache-kafka]",
        ),
        (
            "tests/interop/franz_go/test_franz_go.py::test_kgo_test_that_did_not_end",
            "tests/interop/test_transactional_clients.py::*[ottla]",
            "tests/interop/probes/test_probes.py::test_answers_equal*[txn_",
        ),
        "transactions of franz-go's own suite, of Kafka Streams and of Flink, whose programs are killed again and "
        "again; loops of Python's clients and each single request stay",
    ),
    LongSuite(
        ("tests/interop/librdkafka/test_librdkafka_security.py",),
        ("tests/interop/test_secure_listeners.py::test_librdkafka_produces", "tests/integration/test_attacks.py"),
        "librdkafka's own tests of logins and access rules need another build; its client logs in by each "
        "mechanism in what stays",
    ),
    LongSuite(
        (
            "tests/interop/test_secure_listeners.py::test_kafka_go_is_served",
            "tests/interop/test_secure_listeners.py::test_javascript_clients",
        ),
        (
            "tests/interop/test_secure_listeners.py::test_franz_go_is_served",
            "tests/interop/clients/test_javascript_clients.py",
        ),
        "the same two clients by the other mechanisms, a process of some seconds each, and one more client in Go",
    ),
    LongSuite(
        (
            "tests/integration/spark/test_lake_backfill.py::*apache-kafka",
            "tests/integration/spark/test_spark_lake.py::*apache-kafka",
            "tests/integration/spark/test_delivery_topic.py::*apache-kafka",
            "tests/integration/spark/test_spark_exactly_once.py::*apache-kafka",
            "tests/integration/spark/test_spark_options.py::*apache-kafka",
            "tests/integration/spark/test_spark_sink.py::*apache-kafka",
            "tests/integration/spark/test_spark_stream.py::*apache-kafka",
            "tests/integration/spark/test_spark_tasks.py::*apache-kafka",
        ),
        (
            "tests/integration/spark/test_spark_read.py::*apache-kafka",
            "tests/integration/spark/test_spark_exactly_once.py::test_a_stream_is_written*ottla",
            "tests/integration/spark/test_spark_sink.py::*ottla",
        ),
        "the same cases run on Ottla; reading is compared on both brokers",
    ),
    LongSuite(
        (
            "tests/peers/test_benchmark_clients.py::test_each_client_",
            "tests/peers/test_benchmark_clusters.py::test_topic_is_whole",
            "tests/peers/test_benchmark_clusters.py::test_partitions_are_not_led",
            "tests/peers/test_benchmark_clusters.py::test_groups_are_found",
            "tests/peers/test_benchmark_clusters.py::test_broker_that_was_killed",
            "tests/peers/test_benchmark_clusters.py::test_requests_of_the_study",
            "tests/peers/test_raw_client.py::test_raw_client_produces",
            "tests/peers/test_raw_client.py::test_records_of_the_raw_client",
            "tests/peers/test_raw_client.py::test_transactions",
        ),
        (
            "tests/peers/test_benchmark_clients.py::test_paced_producer_stamps_each_message",
            "tests/peers/test_raw_client.py::test_batches_of_the_raw_client",
        ),
        "tests of the benchmarks with real clients and clusters; tables and judgements stay, and one case of a client",
    ),
    LongSuite(
        (
            "tests/cluster/test_short_chaos.py",
            "tests/cluster/test_cut_off_leaders.py",
            "tests/cluster/test_spark_through_kills.py",
        ),
        (
            "tests/cluster/test_kills.py::test_library",
            "tests/cluster/test_start_without_zookeeper.py",
            "tests/simulation/test_simulation.py::test_each_kind_of_fault",
            "tests/integration/spark/test_load_killed.py",
        ),
        "long chaos of three brokers: rounds of random faults, leaders that are cut off, Spark as one more reader; the "
        "simulation cuts off leaders",
    ),
    LongSuite(
        (
            "tests/cluster/test_kills.py::test_group_of_the_consumer_protocol",
            "tests/cluster/test_kills.py::test_paused_leaders",
        ),
        (
            "tests/cluster/test_kills.py::test_library",
            "tests/cluster/test_rolling_restart.py",
            "tests/cluster/test_moved_coordinators.py",
            "tests/history/test_histories.py::test_kills*[consumer-protocol-6]",
        ),
        "more runs of the same cluster with clients of all libraries, 45 s each: the newer group protocol, pauses, a "
        "dead ZooKeeper; one run with kills of leaders and of the coordinator stays",
    ),
    LongSuite(
        (
            "tests/cluster/test_follower_fetching.py::test_consumer_continues_when_its_follower",
            "tests/cluster/test_moved_coordinators.py::test_members_keep*classic]",
        ),
        (
            "tests/cluster/test_follower_fetching.py::test_consumer_reads_from_the_follower",
            "tests/cluster/test_follower_fetching.py::test_consumer_continues_when_the_leader",
            "tests/cluster/test_kills.py::test_library",
            "tests/cluster/test_moved_coordinators.py::test_members_keep*consumer]",
        ),
        "two more ways in which a consumer loses its follower, and a coordinator that moves under members of the "
        "classic protocol: the follower that becomes the leader stays, the other protocol, and kills of a coordinator "
        "under classic members of five libraries",
    ),
    LongSuite(
        ("tests/cluster/test_moves_under_load.py", "tests/cluster/test_cluster_moves.py"),
        (
            "tests/cluster/test_reassignments.py",
            "tests/simulation/test_simulation.py",
        ),
        "moves of all replicas there and back under load, and with a kill; single moves stay, and the simulation kills "
        "brokers during reassignments",
    ),
    LongSuite(
        ("tests/cluster/test_change_to_secure.py",),
        (
            "tests/cluster/test_secure_cluster.py",
            "tests/cluster/test_members.py::test_open_tree_is_refused",
            "tests/cluster/test_rolling_restart.py",
        ),
        "twelve restarts of brokers under load; a cluster that is secure from the start, a tree that is closed later, "
        "and restarts under load stay",
    ),
    LongSuite(
        ("tests/cluster/test_stuck_syncs.py",),
        (
            "tests/cluster/test_loop_syncs.py",
            "tests/unit/broker/upkeep/test_flusher.py",
            "tests/unit/broker/replicas/test_elector.py",
        ),
        "a disk that is stuck for 45 s, in real time; a stuck flush and its elections are tested in virtual time",
    ),
    LongSuite(
        (
            "tests/history/test_histories.py::test_kills*[range-12]",
            "tests/history/test_histories.py::test_kills*[cooperative-sticky-12]",
            "tests/history/test_histories.py::test_kills*[consumer-protocol-12]",
            "tests/history/test_histories.py::test_checker_notices",
        ),
        (
            "tests/history/test_histories.py::test_kills*[consumer-protocol-6]",
            "tests/history/test_checker.py",
            "tests/cluster/test_kills.py::test_library",
        ),
        "twelve faults with each group protocol, and planted faults of the broker: six faults with one protocol stay, "
        "three brokers have another one; the checker is tested on histories",
    ),
    LongSuite(
        ("tests/transactions_history/test_histories.py",),
        (
            "tests/transactions_history/test_worker.py",
            "tests/transactions_history/test_checker.py",
            "tests/cluster/test_moved_transactions.py",
        ),
        "transactional workers while their broker is killed, and brokers with planted faults: the worker and the "
        "checker are tested without a broker, and a killed coordinator stays",
    ),
    LongSuite(
        ("tests/kill/test_kill.py",),
        (
            "tests/history/test_histories.py::test_kills*[consumer-protocol-6]",
            "tests/history/test_checker.py",
            "tests/interop/test_groups.py::test_group_continues",
        ),
        "a broker that is killed again and again under producers alone, and planted faults of it: producers and a "
        "group through kills of their broker stay",
    ),
    LongSuite(
        (
            "tests/connectors/test_groups_on_apache_kafka.py",
            "tests/connectors/test_groups_on_brokers.py",
            "tests/connectors/test_groups_on_zookeeper.py::*[all-changes]",
        ),
        (
            "tests/connectors/test_groups_on_zookeeper.py::*[kills]",
            "tests/contract/membership/test_membership_contract.py",
            "tests/consumers_simulation/test_simulation.py",
        ),
        "groups of connectors through every kind of change at ZooKeeper, and through kills at Ottla's and Apache "
        "Kafka's own brokers; groups at ZooKeeper through kills stay, and the contract of a membership runs on each",
    ),
    LongSuite(
        ("tests/connectors/test_planted_faults.py",),
        ("tests/connectors/test_checks.py", "tests/consumers_simulation/test_mutants.py"),
        "planted faults on real processes; the checks find the same faults in written journals and in the simulation",
    ),
    LongSuite(
        ("tests/mirror/test_stalled_mirror.py::test_judge_notices",),
        ("tests/mirror/test_stalled_mirror.py::test_judge_compares",),
        "a planted fault on real processes; the judge is tested on rows",
    ),
    LongSuite(
        (
            "tests/simulation/test_simulation.py::test_nothing_acknowledged_is_lost_in_fresh_seeds[60]",
            "tests/consumers_simulation/test_simulation.py::test_guarantees_hold_in_fresh_seeds[40]",
            "tests/producer_simulation/test_simulation.py::test_promises_hold_in_fresh_seeds[40]",
            "tests/transactions_simulation/test_simulation.py::test_guarantees_hold_in_fresh_seeds[40]",
            "tests/simulation/test_mutants.py::*[a follower keeps what its leader cannot compare any more]",
            "tests/simulation/test_mutants.py::*[a replica that leaves keeps the leader epoch]",
            "tests/simulation/test_mutants.py::*[an eligible member freezes nothing]",
            "tests/simulation/test_mutants.py::*[an unknown outcome counts as a failure]",
            "tests/producer_simulation/test_mutants.py::*[only batches in flight are counted]",
            "tests/transactions_simulation/test_mutants.py::*[a cut keeps aborted transactions]",
            "tests/transactions_simulation/test_mutants.py::*[a replaced coordinator answers]",
            "tests/transactions_simulation/test_mutants.py::*[an end is answered before it is stable]",
            "tests/transactions_simulation/test_mutants.py::*[commands are served while loading]",
            "tests/transactions_simulation/test_mutants.py::*[markers stop without a leader]",
            "tests/transactions_simulation/test_mutants.py::*[markers of replaced coordinators are written]",
        ),
        (
            "tests/simulation/test_simulation.py::test_nothing_acknowledged_is_lost_in_fresh_seeds[4]",
            "tests/consumers_simulation/test_simulation.py::test_guarantees_hold_in_fresh_seeds[3]",
            "tests/producer_simulation/test_simulation.py::test_promises_hold_in_fresh_seeds[3]",
            "tests/transactions_simulation/test_simulation.py::test_guarantees_hold_in_fresh_seeds[3]",
            "tests/simulation/test_mutants.py::*[an election keeps the leader epoch]",
            "tests/simulation/test_mutants.py::*[a follower cuts by the leader's log alone]",
            "tests/simulation/test_mutants.py::*[a minimum that is not met freezes nothing]",
            "tests/producer_simulation/test_mutants.py::*[requests in flight are not counted]",
            "tests/transactions_simulation/test_mutants.py::*[a load ends at the high watermark]",
            "tests/transactions_simulation/test_mutants.py::*[a repeated end is refused]",
            "tests/transactions_simulation/test_mutants.py::*[the last stable offset passes markers that may be cut]",
        ),
        "longer searches by the same simulations, and planted bugs that need many seeds: those that few find stay",
    ),
    LongSuite(
        (
            "tests/property/test_follower_log.py::test_flushed_batches*[0-False-",
            "tests/property/test_follower_log.py::test_flushed_batches*[0-True-0]",
            "tests/property/test_follower_log.py::test_flushed_batches*[1-",
            "tests/property/test_follower_log.py::test_flushed_batches*[2-",
            "tests/property/test_follower_log.py::test_flushed_batches*[3-",
            "tests/property/test_compaction_survives_crashes.py::test_newest_values_survive_a_kill",
            "tests/property/test_compaction_survives_crashes.py::test_newest_values_survive_a_power_loss*[1]",
            "tests/property/test_compaction_survives_crashes.py::test_newest_values_survive_a_power_loss*[2]",
            "tests/property/test_log_survives_crashes.py::test_flushed_records*[all at once-0]",
            "tests/property/test_log_survives_crashes.py::test_flushed_records*[one by one-1]",
            "tests/property/test_log_survives_crashes.py::test_flushed_records*-2]",
            "tests/property/test_log_survives_crashes.py::test_flushed_records*-3]",
            "tests/property/test_truncated_producers.py::test_truncated_log*[1",
            "tests/property/test_truncated_producers.py::test_truncated_log*[2",
        ),
        (
            "tests/property/test_follower_log.py::test_flushed_batches*[0-True-1000]",
            "tests/property/test_compaction_survives_crashes.py::test_newest_values_survive_a_power_loss*[0]",
            "tests/property/test_log_survives_crashes.py::test_flushed_records*[one by one-0]",
            "tests/property/test_log_survives_crashes.py::test_flushed_records*[all at once-1]",
            "tests/property/test_follower_log.py::TestFollowerEqualsLeader",
            "tests/property/test_truncated_producers.py::test_truncated_log*[0-",
            "tests/property/test_truncated_producers.py::test_truncated_log*[9-",
        ),
        "more lives of a follower, a cleaner and a log with a power loss at each of their operations, thousands of "
        "recoveries each, and more seeds of cuts: one or two of each stay, with every kind of sync, and eight seeds",
    ),
    LongSuite(
        (
            "tests/integration/test_demo.py::test_a_record_that_the_lake_lost",
            "tests/integration/test_demo.py::test_interrupted_demo*[jobs -2.0]",
            "tests/integration/test_demo.py::test_interrupted_demo*[Spark loads-2.0]",
            "tests/integration/test_demo.py::test_interrupted_demo*[Spark finds-2.0]",
            "tests/integration/test_demo.py::test_demo_stopped_by_another_signal*[15-jobs ]",
            "tests/integration/test_demo.py::test_demo_fails_at_once*[watching",
        ),
        (
            "tests/integration/test_demo.py::test_every_event",
            "tests/integration/test_demo.py::test_interrupted_demo*[the day -0.5]",
            "tests/integration/test_demo.py::test_demo_stopped_by_another_signal*[1-broker ]",
            "tests/integration/test_demo.py::test_demo_fails_at_once*[ottla serve",
            "tests/integration/spark/test_spark_audit.py",
        ),
        "whole days of the demo: one with a lost record, which the audit's own tests find, too; and more moments, "
        "signals and victims of the same interruption, when Spark runs already",
    ),
    LongSuite(
        (
            "tests/examples/test_abuse_alert.py",
            "tests/examples/test_related_items.py::test_counts_are_those_of_the_input",
            "tests/integration/spark/test_spark_dead_letters_through_kills.py",
            "tests/integration/spark/test_spark_exactly_once.py::test_a_batch_of_which",
            "tests/integration/spark/test_spark_exactly_once.py::test_a_query_without",
            "tests/integration/spark/test_spark_exactly_once_through_kills.py",
            "tests/integration/spark/test_spark_mirror.py::test_killed_job",
            "tests/integration/spark/test_stream_killed_at_its_start.py",
            "tests/loads/test_loads_through_kills.py",
            "tests/loads/test_upserts_study.py",
            "tests/sink/test_sink_through_kills.py",
        ),
        (
            "tests/examples/test_related_items.py::test_batch_that_runs_again",
            "tests/integration/spark/test_load_killed.py",
            "tests/integration/spark/test_spark_dead_letters.py::test_failing_rows",
            "tests/integration/spark/test_spark_dead_letters.py::test_many_letters",
            "tests/integration/spark/test_spark_exactly_once.py::test_a_stream_is_written",
            "tests/integration/spark/test_spark_exactly_once.py::test_a_transaction_that",
            "tests/unit/spark/sink/test_deliveries.py",
            "tests/sink/test_judgement.py",
            "tests/mirror/test_killed_mirror.py",
        ),
        "programs with Spark that are killed at each point, two to four drivers one after the other: one kill of a "
        "load stays, which the tests' own session continues, and batches that fail between letters and commit",
    ),
    LongSuite(
        (
            "tests/examples/test_clean_views.py::test_cleaner_that_is_killed_again",
            "tests/examples/test_clean_views.py::test_cleaners_that_come_and_go",
            "tests/examples/test_clean_views.py::test_commands*[apache-kafka]",
            "tests/examples/test_clean_views.py::test_cleaner_that_was_killed_before*[apache-kafka]",
        ),
        (
            "tests/examples/test_clean_views.py::test_commands*[ottla]",
            "tests/examples/test_clean_views.py::test_cleaner_that_was_killed_before*[ottla]",
        ),
        "a program that is killed at each point of its transactions, twice, and beside Apache Kafka: each run joins "
        "its group when the session of the one before is over; the kill between messages and commit stays",
    ),
    LongSuite(
        ("tests/integration/spark_cluster/test_spark_cluster.py",),
        (
            "tests/integration/test_guide_of_spark.py::*[spark-cluster.md]",
            "tests/unit/spark/test_worker_archive.py::test_what_a_cluster_has",
        ),
        "a standalone cluster of Spark is five JVMs beside each driver: workers without the package, and executors "
        "that die; the archive and spark-submit are tested on one machine",
    ),
    LongSuite(
        (
            "tests/integration/spark/test_spark_sessions.py::test_register_works",
            "tests/integration/spark/test_spark_sessions.py::test_a_session_is_quiet",
            "tests/integration/spark/test_spark_sessions.py::test_a_session_follows_spark_submit",
            "tests/integration/spark/test_spark_fixture.py",
            "tests/integration/spark/test_spark_java.py",
            "tests/unit/spark/test_worker_archive.py::test_a_python_with_nothing",
        ),
        (
            "tests/integration/spark/test_load_command.py::test_a_load_takes",
            "tests/integration/spark/test_shared_session.py",
            "tests/integration/test_guide_of_spark.py::test_snippet_of_the_readme",
            "tests/unit/spark/test_worker_archive.py::test_what_a_cluster_has",
        ),
        "sessions as programs start them, each with a new JVM: all threads, nothing printed or left, the Python of an "
        "archive, Java from PyPI, the fixture of a user's tests; what stays has a load and pages of the guide that "
        "start one, and the fixture in the session that runs",
    ),
    LongSuite(
        (
            "tests/integration/spark/test_spark_read.py::test_a_narrow*[apache-kafka",
            "tests/integration/spark/test_spark_read.py::test_a_schema*[apache-kafka",
            "tests/integration/spark/test_spark_read.py::test_more_tasks*[apache-kafka",
            "tests/integration/spark/test_spark_read.py::test_names_and_types*[apache-kafka",
            "tests/integration/spark/test_spark_stalls.py::test_a_broker_that_stalls*[killed]",
            "tests/integration/spark/test_spark_stream.py::test_a_recreated*[ottla-2]",
        ),
        (
            "tests/integration/spark/test_spark_read.py::test_a_narrow*[ottla",
            "tests/integration/spark/test_spark_read.py::test_a_schema*[ottla",
            "tests/integration/spark/test_spark_read.py::test_more_tasks*[ottla",
            "tests/integration/spark/test_spark_read.py::test_names_and_types*[ottla",
            "tests/integration/spark/test_spark_read.py::test_every_column*[apache-kafka-zstd]",
            "tests/integration/spark/test_spark_stalls.py::test_a_broker_that_stalls*[paused]",
            "tests/integration/spark/test_spark_stalls.py::test_a_broker_that_is_down",
            "tests/integration/spark/test_spark_stream.py::test_a_recreated*[ottla-8]",
            "tests/unit/spark/source/test_stream_reader.py::test_a_recreated_topic",
        ),
        "plans of a read, which do not depend on the broker, and of two brokers that stall and of two lengths of a "
        "recreated topic one each",
    ),
    LongSuite(
        ("tests/integration/spark_versions/test_spark_versions.py",),
        ("tests/unit/spark/test_spark_features.py", "tests/integration/spark/test_spark_stream.py"),
        "the tests of the source, the sink and the pipeline under each earlier Spark, minutes each: the newest one "
        "stays, and what the older ones lack is decided by pure code",
    ),
    LongSuite(
        ("tests/integration/test_pipelines.py",),
        ("tests/integration/test_guide.py::*[pipelines.md]", "tests/integration/spark/test_spark_stream.py"),
        "a declarative pipeline, two runs of half a minute, each with a server of Spark Connect; streams in a session "
        "of the tests stay",
    ),
    LongSuite(
        ("tests/integration/spark/test_spark_connect.py",),
        ("tests/unit/spark/lake/test_numbered_tasks.py", "tests/integration/spark/test_load_command.py"),
        "a server of Spark Connect is another Spark and its start; tasks that are named by numbers, which loads use "
        "there, and loads in a session of the tests stay",
    ),
    LongSuite(
        (
            "tests/interop/clients/test_apache_group_tools.py::test_console_consumer_reads_as_a_member*[classic]",
            "tests/interop/clients/test_apache_group_tools.py::test_configs_command",
            "tests/interop/clients/test_apache_group_tools.py::test_console_consumer_reads_every_codec",
            "tests/interop/clients/test_apache_group_tools.py::test_consumer_groups",
            "tests/interop/clients/test_apache_group_tools.py::test_consumer_perf",
            "tests/interop/clients/test_other_languages.py::test_java_client_3_9",
            "tests/interop/test_apache_tools.py::test_console_producer*[gzip]",
            "tests/interop/test_apache_tools.py::test_console_producer*[snappy]",
            "tests/interop/test_apache_tools.py::test_console_producer*[zstd]",
            "tests/interop/test_acl_tool.py",
            "tests/interop/test_quota_tool.py",
            "tests/cluster/test_apache_reassignment_tools.py",
        ),
        (
            "tests/interop/clients/test_apache_group_tools.py::test_console_consumer_reads_as_a_member*[consumer]",
            "tests/interop/clients/test_apache_group_tools.py::test_log_dirs_command",
            "tests/interop/clients/test_other_languages.py::test_java_client_4_4",
            "tests/interop/test_apache_tools.py::test_console_producer*[lz4]",
            "tests/interop/test_apache_tools.py::test_console_consumer_reads_every_codec",
            "tests/interop/test_apache_tools.py::test_topic_command",
            "tests/interop/test_secure_listeners.py::test_kafka_configs",
            "tests/integration/test_authorizer.py",
            "tests/integration/test_client_groups.py",
            "tests/integration/test_quotas.py",
            "tests/cluster/test_reassignments.py",
        ),
        "the same tools with the other group protocol and other codecs, a JVM for each command, and tools of groups, "
        "rules, quotas, leaders and settings, whose requests clients send, too; and an older release of Java's client",
    ),
    LongSuite(
        (
            "tests/property/test_wire_calls.py::*-between]",
            "tests/property/test_wire_calls.py::test_corrupted*-lowest]",
            "tests/property/test_wire_hostile.py::test_mutated*-between]",
            "tests/property/test_wire_hostile.py::test_mutated*-lowest]",
            "tests/property/test_wire_hostile.py::test_memory*-between]",
            "tests/property/test_wire_hostile.py::test_memory*-lowest]",
            "tests/property/test_wire_hostile.py::test_noise*-between]",
            "tests/property/test_wire_hostile.py::test_noise*-lowest]",
            "tests/property/test_wire_hostile.py::test_wrong_counts*-between]",
            "tests/property/test_wire_hostile.py::test_wrong_counts*-lowest]",
            "tests/property/test_wire_messages.py::*-between]",
        ),
        (
            "tests/property/test_wire_calls.py::test_any_request*[metadata-v0-lowest]",
            "tests/property/test_wire_calls.py::test_corrupted*[metadata-v12]",
            "tests/property/test_wire_hostile.py::test_mutated*[fetch-v4]",
            "tests/property/test_wire_hostile.py::test_memory*[fetch-v4]",
            "tests/property/test_wire_hostile.py::test_wrong_counts*[fetch-v17]",
            "tests/property/test_wire_hostile.py::test_every_truncation*[fetch-v11-between]",
            "tests/property/test_wire_hostile.py::test_noise*[fetch-v4]",
            "tests/property/test_wire_messages.py::*[metadata-v0-lowest]",
            "tests/unit/broker/test_async_requests.py::test_every_api_and_version",
        ),
        "random messages of the versions between the lowest and the highest of an API, which differ in a field or two, "
        "and damaged ones of the lowest, which the same reader reads: every version is truncated and answered, sound "
        "messages of both ends stay, and damaged ones of the highest",
    ),
    LongSuite(
        (
            *(f"tests/property/test_wire_produce_fetch.py::test_produce*[{version}]" for version in (4, 6, 7)),
            *(f"tests/property/test_wire_produce_fetch.py::test_fetch*[{version}]" for version in (6, 8, 10, 14)),
        ),
        (
            *(f"tests/property/test_wire_produce_fetch.py::test_produce*[{version}]" for version in (3, 5, 8, 9, 10)),
            *(f"tests/property/test_wire_produce_fetch.py::test_fetch*[{version}]" for version in (5, 7, 9, 13, 17)),
        ),
        "versions of Produce and Fetch whose fields are those of the version before",
    ),
    LongSuite(
        (
            "tests/integration/test_large_frames.py::test_no_frame_of_any_version",
            "tests/integration/test_large_frames.py::test_no_frame_of_the_largest",
        ),
        (
            "tests/integration/test_large_frames.py::test_no_frame_blocks*[fetch]",
            "tests/integration/test_large_frames.py::test_no_frame_of_an_api_that_is_seldom_sent",
        ),
        "frames of every version, and the largest of APIs that clients seldom call, also of equal elements: different "
        "elements of a third of that size stay, for a sixth of these APIs in each run, and the largest of other APIs",
    ),
    LongSuite(
        ("tests/integration/test_hostile_frames.py::test_broker_survives_corrupted_frames*[100]",),
        ("tests/integration/test_hostile_frames.py::test_broker_survives_corrupted_frames*[25]",),
        "four times as many corrupted frames of each API and version, a connection each",
    ),
    LongSuite(
        ("tests/integration/test_group_memory.py::*[whole]",),
        ("tests/integration/test_group_memory.py::*[eighth]",),
        "floods that fill all of the memory for groups; a broker with an eighth of it stays, which is filled alike",
    ),
    LongSuite(
        (
            "tests/integration/spark/test_spark_late_rows.py::test_late_rows_of_dedup",
            "tests/integration/spark/test_spark_late_rows.py::test_late_rows_of_sessions",
            "tests/integration/spark/test_spark_late_rows.py::test_late_rows_of_windows",
            "tests/integration/spark/test_spark_streams.py::test_top_pages",
        ),
        (
            "tests/integration/spark/test_spark_streams.py::test_sessions",
            "tests/integration/spark/test_spark_streams.py::test_clicks",
            "tests/integration/spark/test_spark_late_rows.py::test_late_rows_of_a_join",
        ),
        "more operators, beside Spark's own count of late rows; sessions and joins stay",
    ),
    LongSuite(
        (
            "tests/integration/test_guide_of_spark.py::*[dead-letters.md]",
            "tests/integration/test_guide_of_spark.py::*[loads.md]",
            "tests/integration/test_guide_of_spark.py::*[mirror.md]",
            "tests/integration/test_guide_of_spark.py::*[personal-data.md]",
            "tests/integration/test_guide_of_spark.py::*[schemas.md]",
            "tests/integration/test_guide_of_spark.py::*[streams.md]",
            "tests/integration/test_guide_of_spark.py::*[upserts.md]",
            "tests/examples/test_examples_page_of_spark.py",
        ),
        (
            "tests/integration/test_guide_of_spark.py::*[spark-source.md]",
            "tests/examples/test_examples_page.py",
            "tests/integration/lake/test_erasure.py",
            "tests/integration/spark/test_load_command.py",
            "tests/integration/spark/test_spark_dead_letters.py",
            "tests/integration/spark/test_spark_mirror.py",
            "tests/integration/spark/test_spark_schemas.py",
            "tests/integration/spark/test_spark_streams.py",
            "tests/integration/spark/test_spark_upserts.py",
        ),
        "the longest pages of documentation as they are printed, streams in processes that start Spark each time; "
        "the other pages stay, and the calls of these have tests",
    ),
    LongSuite(
        ("tests/cluster/test_damaged_replicas.py::test_replica_that_was_damaged",),
        (
            "tests/cluster/test_damaged_replicas.py::test_leader_with_a_damaged_log",
            "tests/property/test_log_refuses_damage.py",
        ),
        "other damage of a replica's files: a log refuses all of them in its own tests, and a flipped bit stays",
    ),
    LongSuite(
        (
            "tests/cluster/test_stale_directories.py::test_copy_of_an_earlier_life",
            "tests/cluster/test_stale_directories.py::test_followers_keep",
            "tests/cluster/test_stale_directories.py::test_only_replica",
        ),
        (
            "tests/cluster/test_stale_directories.py::test_copy_of_the_same_life",
            "tests/cluster/test_stale_directories.py::test_copy_of_a_running_broker",
            "tests/simulation/test_mutants.py::*[a stale directory is trusted]",
        ),
        "three more histories of a copied data directory, half a minute and more of restarts each",
    ),
    LongSuite(
        (
            "tests/mirror/test_between_clusters.py",
            "tests/mirror/test_transactional_mirror.py::test_each_record",
            "tests/mirror/test_with_apache_kafka.py::test_mirror_that_is_killed",
        ),
        (
            "tests/mirror/test_killed_mirror.py",
            "tests/mirror/test_transactional_mirror.py::test_records_of_another_writer",
            "tests/mirror/test_with_apache_kafka.py::test_committed_records",
        ),
        "a mirror of two clusters, through deaths of their leaders, and killed beside Apache Kafka: a killed mirror "
        "stays, and one that reads from Apache Kafka",
    ),
    LongSuite(
        (
            "tests/peers/test_apache_kafka.py::test_topic_command",
            "tests/peers/test_apache_kafka.py::test_usage",
            "tests/peers/test_apache_kafka.py::test_tool_reports",
            "tests/peers/test_apache_kafka.py::test_broker_is_gone",
        ),
        (
            "tests/peers/test_apache_kafka.py::test_install_gives_the_reason",
            "tests/interop/probes/test_probes.py",
        ),
        "the harness of Apache Kafka itself, which every comparison with it uses",
    ),
    LongSuite(
        (
            "tests/integration/test_dev.py::test_interrupted_first_run",
            "tests/integration/test_dev.py::test_venv_that_the_user_made_without_pip",
            "tests/integration/test_running_zookeeper.py::test_ensemble",
            "tests/contract/test_zookeeper_faults.py::test_writes_continue_when_an_ensemble",
        ),
        (
            "tests/integration/test_dev.py::test_second_run_waits",
            "tests/integration/test_running_zookeeper.py::test_node_survives_a_crash",
            "tests/contract/test_zookeeper_faults.py::test_nothing_acknowledged_is_lost",
        ),
        "installations that take half a minute, and ensembles of three JVMs; the other starts and a single server stay",
    ),
    LongSuite(
        (
            "tests/cluster/test_audit.py",
            "tests/integration/test_broker_counts.py::test_nothing_is_counted_twice*[9]",
            "tests/integration/test_schema_registry.py::test_acknowledged_schemas_survive",
            "tests/integration/spark/test_secured_pipeline.py::test_official_connectors_options",
        ),
        (
            "tests/integration/test_broker_counts.py::test_nothing_is_counted_twice*[3]",
            "tests/integration/test_schema_registry.py::test_registry_that_is_killed",
            "tests/cluster/test_schema_registries.py",
            "tests/integration/spark/test_secured_pipeline.py::test_wrong_password",
            "tests/integration/spark/test_secured_pipeline.py::test_load_reads_its_login",
            "tests/unit/spark/options/test_security_options.py",
        ),
        "audit counts of a cluster and many registrations through kills, and a driver with the options of the official "
        "connector: counts of one broker, single kills and the other logins stay",
    ),
    LongSuite(
        ("tests/interop/test_log_import.py::test_import_copies*[--copy]",),
        (
            "tests/interop/test_log_import.py::test_import_copies*[--link]",
            "tests/unit/cli/log/test_log_import.py::test_import_makes_topics",
        ),
        "the same import of a directory of Apache Kafka, with copies instead of links: both are tested on a small one",
    ),
    LongSuite(
        (
            "tests/interop/test_compacted_topics.py::test_reader*[gzip]",
            "tests/interop/test_compacted_topics.py::test_reader*[lz4]",
            "tests/interop/test_compacted_topics.py::test_reader*[none]",
            "tests/interop/test_compacted_topics.py::test_reader*[zstd]",
            "tests/interop/test_groups.py::test_remaining_members*[cooperative-sticky]",
            "tests/interop/test_secure_listeners.py::test_console_tools*[SASL_SSL-PLAIN]",
            "tests/interop/test_secure_listeners.py::test_console_tools*[SASL_SSL-SCRAM-SHA-256]",
            "tests/interop/test_secure_listeners.py::test_console_tools*[SSL]",
            "tests/interop/test_secure_listeners.py::test_franz_go*[SASL_PLAINTEXT-",
            "tests/interop/test_secure_listeners.py::test_franz_go*[SASL_SSL-PLAIN]",
            "tests/interop/test_secure_listeners.py::test_franz_go*[SASL_SSL-SCRAM-SHA-256]",
        ),
        (
            "tests/interop/test_compacted_topics.py::test_reader*[snappy]",
            "tests/interop/test_groups.py::test_remaining_members*[consumer]",
            "tests/interop/test_groups.py::test_remaining_members*[range]",
            "tests/interop/test_secure_listeners.py::test_console_tools*[SASL_SSL-SCRAM-SHA-512]",
            "tests/interop/test_secure_listeners.py::test_franz_go*[SASL_SSL-SCRAM-SHA-512]",
            "tests/interop/test_secure_listeners.py::test_franz_go*[SSL]",
        ),
        "the same client with each further codec, mechanism or assignor: one of each stays",
    ),
    LongSuite(
        (
            "tests/interop/clients/test_testing_examples.py::test_example_for_go",
            "tests/interop/clients/test_testing_examples.py::test_example_for_java",
        ),
        (
            "tests/interop/clients/test_testing_examples.py::test_example_for_node",
            "tests/integration/test_testing_command.py",
        ),
        "the same command beside a program that is compiled first",
    ),
    LongSuite(
        ("tests/interop/clients/test_spark_connector.py",),
        (
            "tests/interop/clients/test_other_languages.py::test_java_client_4_4",
            "tests/integration/spark/test_spark_read.py",
            "tests/integration/spark/test_spark_sink.py",
        ),
        "one more session of Spark, whose connector talks by Java's client: that client stays, and Ottla's source",
    ),
    LongSuite(
        ("tests/cluster/test_replication.py::test_killed_leaders",),
        ("tests/cluster/test_kills.py::test_library", "tests/cluster/test_replication.py::test_produce_is_refused"),
        "kills of leaders under one producer, with each flush policy: kills under producers of five libraries stay",
    ),
    LongSuite(
        (
            "tests/cluster/test_damaged_replicas.py::*zookeeper_tree",
            "tests/cluster/test_follower_fetching.py::*zookeeper_tree",
            "tests/cluster/test_loop_syncs.py::*zookeeper_tree",
            "tests/cluster/test_moved_coordinators.py::*zookeeper_tree",
            "tests/cluster/test_moved_transactions.py::*zookeeper_tree",
            "tests/cluster/test_replication.py::*zookeeper_tree",
            "tests/cluster/test_schema_registries.py::*zookeeper_tree",
        ),
        (
            "tests/cluster/test_damaged_replicas.py::*process_tree",
            "tests/cluster/test_follower_fetching.py::*process_tree",
            "tests/cluster/test_loop_syncs.py::*process_tree",
            "tests/cluster/test_moved_coordinators.py::*process_tree",
            "tests/cluster/test_moved_transactions.py::*process_tree",
            "tests/cluster/test_replication.py::*process_tree",
            "tests/cluster/test_schema_registries.py::*process_tree",
            "tests/cluster/test_kills.py::test_library",
        ),
        "clusters whose tree is in a ZooKeeper, where the test is not about it: the same tests run with the tree in a "
        "process, and those of leaders, members, sessions and kills have a ZooKeeper",
    ),
    LongSuite(
        (
            "tests/integration/test_client_command_line.py::test_topic_verbs*[apache_kafka]",
            "tests/integration/test_client_command_line.py::test_hints_of*[apache_kafka]",
            "tests/integration/test_client_command_line.py::test_settings_of*[apache_kafka]",
            "tests/integration/test_client_command_line.py::test_top_shows*[apache_kafka]",
            "tests/integration/test_client_command_line.py::test_records_are_deleted*[apache_kafka]",
            "tests/integration/test_client_command_line.py::test_consume_prints_the_keys*[apache_kafka-gzip]",
            "tests/integration/test_client_command_line.py::test_consume_prints_the_keys*[apache_kafka-snappy]",
            "tests/integration/test_client_command_line.py::test_consume_prints_the_keys*[apache_kafka-lz4]",
        ),
        (
            "tests/integration/test_client_command_line.py::test_topic_verbs*[ottla_broker]",
            "tests/integration/test_client_command_line.py::test_hints_of*[ottla_broker]",
            "tests/integration/test_client_command_line.py::test_settings_of*[ottla_broker]",
            "tests/integration/test_client_command_line.py::test_top_shows*[ottla_broker]",
            "tests/integration/test_client_command_line.py::test_records_are_deleted*[ottla_broker]",
            "tests/integration/test_client_command_line.py::test_consume_prints_the_keys*[apache_kafka-zstd]",
            "tests/integration/test_client_command_line.py::test_consume_of_a_group*[apache_kafka]",
            "tests/integration/test_client_command_line.py::test_produce_writes*[apache_kafka]",
        ),
        "verbs of topics and settings against Apache Kafka, a process for each command: records and transactions "
        "stay there, and all verbs against Ottla",
    ),
    LongSuite(
        (
            "tests/integration/lake/test_upserts.py::test_changes_in_the_order*-s3]",
            "tests/integration/lake/test_upserts.py::test_a_snapshot*-s3]",
            "tests/integration/lake/test_upserts.py::test_small_files*-s3]",
            "tests/integration/lake/test_upserts.py::test_files_that_may_be*-s3]",
            "tests/integration/lake/test_upserts.py::test_files_without*-s3]",
            "tests/integration/lake/test_upserts.py::test_files_of_changes_are_gone*-s3]",
            "tests/integration/lake/test_upserts.py::test_a_new_column*-s3]",
            "tests/integration/lake/test_upserts.py::test_changes_are_applied*-s3]",
        ),
        (
            "tests/integration/lake/test_upserts.py::test_changes_in_the_order*-local]",
            "tests/integration/lake/test_upserts.py::test_a_snapshot*-local]",
            "tests/integration/lake/test_upserts.py::test_small_files*-local]",
            "tests/integration/lake/test_upserts.py::test_files_that_may_be*-local]",
            "tests/integration/lake/test_upserts.py::test_files_without*-local]",
            "tests/integration/lake/test_upserts.py::test_files_of_changes_are_gone*-local]",
            "tests/integration/lake/test_upserts.py::test_a_new_column*-local]",
            "tests/integration/lake/test_upserts.py::test_changes_are_applied*-local]",
            "tests/integration/lake/test_upserts.py::test_of_two_upserts*-s3]",
        ),
        "the same upserts with a table in S3: what differs there is the conditional commit, and two at once stay",
    ),
    LongSuite(
        (
            "tests/integration/lake/test_lake_tables.py::test_a_table_that_is_partitioned*-s3]",
            "tests/integration/lake/test_lake_tables.py::test_an_empty_text*-s3]",
            "tests/integration/lake/test_lake_tables.py::test_files_with_deleted*-s3]",
            "tests/integration/lake/test_lake_tables.py::test_new_columns*-s3]",
            "tests/integration/lake/test_lake_tables.py::test_small_files*-s3]",
            "tests/integration/lake/test_lake_tables.py::test_table_is_created*-s3]",
            "tests/integration/lake/test_catalogs.py::test_files_are_compacted*[glue]",
        ),
        (
            "tests/integration/lake/test_lake_tables.py::test_a_table_that_is_partitioned*-local]",
            "tests/integration/lake/test_lake_tables.py::test_an_empty_text*-local]",
            "tests/integration/lake/test_lake_tables.py::test_files_with_deleted*-local]",
            "tests/integration/lake/test_lake_tables.py::test_new_columns*-local]",
            "tests/integration/lake/test_lake_tables.py::test_small_files*-local]",
            "tests/integration/lake/test_lake_tables.py::test_table_is_created*-local]",
            "tests/integration/lake/test_lake_tables.py::test_files_are_replaced*-s3]",
            "tests/integration/lake/test_lake_tables.py::test_files_of_dead_tasks*-s3]",
            "tests/integration/lake/test_lake_tables.py::test_of_two_commits*-s3]",
            "tests/integration/lake/test_catalogs.py::test_files_are_compacted*[rest]",
            "tests/integration/lake/test_catalogs.py::test_a_new_table*[glue]",
        ),
        "the same tables in S3, and a further verb at a table of Glue: commits, replaced and removed files stay there",
    ),
    LongSuite(
        (
            "tests/cluster/test_cluster_up.py::test_cluster_restarts*[home1]",
            "tests/cluster/test_cluster_up.py::test_tree_stays*[home1",
        ),
        (
            "tests/cluster/test_cluster_up.py::test_cluster_restarts*[home0]",
            "tests/cluster/test_cluster_up.py::test_tree_stays*[home0",
            "tests/cluster/test_cluster_up.py::test_secure_cluster",
        ),
        "the same clusters of `cluster up` with a ZooKeeper, which a secure one has, too",
    ),
    LongSuite(
        ("tests/integration/test_pyright.py",),
        ("tests/unit/client/test_public_names.py::test_program",),
        "pyright on the program with every public name, which npm brings; mypy checks the same program in "
        "`./dev check`",
    ),
    LongSuite(
        ("tests/website/test_site.py",),
        (
            "tests/architecture/test_site.py",
            "tests/unit/website/test_docstrings.py",
            "tests/unit/website/test_repository_links.py",
        ),
        "the site of docs/, whose packages are installed and which Chromium reads: pages, links, public names and "
        "generated tables are compared without it",
    ),
    LongSuite(
        (
            *(f"tests/contract/test_{name}.py::*[zookeeper" for name in _REGISTRIES),
            "tests/contract/membership/test_membership_contract.py::*[apache-kafka-classic]",
        ),
        (
            *(f"tests/contract/test_{name}.py::*[local" for name in _REGISTRIES),
            "tests/contract/test_tree_contract.py::*[zookeeper",
            "tests/contract/test_tree_member.py::*[zookeeper",
            "tests/contract/membership/test_membership_contract.py::*[apache-kafka-consumer]",
            "tests/contract/membership/test_membership_contract.py::*[ottla-classic]",
        ),
        "registries in a ZooKeeper, of which they know only the contract of a tree, and that runs there; and groups of "
        "the classic protocol at Apache Kafka: it stays at Ottla, and the other protocol at both",
    ),
    LongSuite(
        (
            "tests/interop/serializers/test_registry_on_apache_kafka.py",
            "tests/interop/security/test_authorizer_table.py::test_error_codes",
            "tests/interop/security/test_clients_at_secure_kafka.py::test_a_connection_outlives",
        ),
        (
            "tests/interop/serializers/test_java_serializers.py",
            "tests/integration/test_schema_registry.py",
            "tests/unit/broker/authorization/test_api_guards.py",
            "tests/integration/test_authorizer.py",
            "tests/interop/security/test_clients_at_secure_kafka.py::test_a_producer_and_a_consumer_keep",
        ),
        "a registry whose topic is at Apache Kafka, error codes of every right there, and another session of a login; "
        "each starts an Apache Kafka or waits for it",
    ),
    LongSuite(
        (
            "tests/integration/test_guide.py::*[audit.md]",
            "tests/integration/test_guide.py::*[rebalancing.md]",
            "tests/integration/test_guide.py::*[transactions.md]",
        ),
        (
            "tests/integration/test_guide.py::*[consumer.md]",
            "tests/integration/test_guide.py::*[delivery.md]",
            "tests/integration/test_audit_command.py",
            "tests/integration/test_client_transactional_offsets.py",
            "tests/contract/membership/test_membership_contract.py",
        ),
        "the longest pages of documentation as they are printed; the other pages stay, and their calls have tests",
    ),
    LongSuite(
        (
            "tests/mirror/test_killed_mirror.py::test_mirror_that_was_stopped_past",
            "tests/mirror/test_mirror.py::test_compacted_source_with_many_gaps",
            "tests/cluster/test_start_without_zookeeper.py::test_broker_waits_also",
        ),
        (
            "tests/mirror/test_killed_mirror.py::test_killed_mirror",
            "tests/mirror/test_stalled_mirror.py::test_lease_that_is_renewed",
            "tests/unit/mirror/test_folded_map.py",
            "tests/cluster/test_start_without_zookeeper.py::test_broker_waits_and_is_ready",
        ),
        "more ways in which a mirror is killed or paused, and in which a broker waits for its ZooKeeper",
    ),
    LongSuite(
        (
            "tests/integration/test_opened_batches.py::*[500 MiB checked]",
            "tests/integration/test_opened_batches.py::*[60 MiB to gzip]",
            "tests/integration/test_recreated_topics.py::*[14]",
        ),
        (
            "tests/integration/test_opened_batches.py::*[60 MiB checked]",
            "tests/integration/test_opened_batches.py::*[60 MiB to lz4",
            "tests/integration/test_recreated_topics.py::*[7]",
        ),
        "the largest batches, seconds of compression each, and twice as many lives of a topic",
    ),
    LongSuite(
        ("tests/integration/test_processes_change.py::test_killed_brokers_lose_nothing",),
        (
            "tests/integration/test_processes_change.py::test_everything_continues",
            "tests/property/test_resize_survives_crashes.py",
        ),
        "the next supervisor stops the brokers of a killed one; crashes are tried on a disk in memory",
    ),
)


def _matches(pattern: str, node_id: str) -> bool:
    return re.match(".*".join(map(re.escape, pattern.split("*"))), node_id) is not None


def file_of(node_id: str) -> str:
    return node_id.partition("::")[0]


_LONG_BY_FILE: Final[dict[str, list[str]]] = {}
for _suite in LONG_SUITES:
    for _pattern in _suite.tests:
        _LONG_BY_FILE.setdefault(file_of(_pattern), []).append(_pattern)


def is_long(node_id: str) -> bool:
    return any(_matches(pattern, node_id) for pattern in _LONG_BY_FILE.get(file_of(node_id), ()))


def unmatched(node_ids: Sequence[str], suites: Sequence[LongSuite] = LONG_SUITES) -> list[str]:
    """The patterns without a test, and those of what stays that match only long tests."""
    short = [node_id for node_id in node_ids if not is_long(node_id)]
    return [
        pattern
        for suite in suites
        for patterns, candidates in ((suite.tests, node_ids), (suite.stays, short))
        for pattern in patterns
        if not any(_matches(pattern, node_id) for node_id in candidates)
    ]


def markdown_rows() -> list[str]:
    """The table of tests/README.md."""
    return [f"| {_cell(suite.tests)} | {_cell(suite.stays)} | {suite.reason} |" for suite in LONG_SUITES]


def _cell(patterns: tuple[str, ...]) -> str:
    return "<br>".join(f"`{pattern.removeprefix('tests/')}`" for pattern in patterns)
