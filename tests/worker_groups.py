"""How the tests are divided among pytest-xdist's workers: groups that one worker runs in order, longest first.

Most tests wait: for sessions to expire, JVMs to start, killed brokers to come back.  So `./dev test` uses more workers
than the machine has cores.  A file is a group unless it is named here:

* Files that start Spark, a JVM or a cluster belong to one of the heavy groups, so that few of them compete for cores
  and memory, and shared servers (a Spark session, an Apache Kafka broker, a ZooKeeper) start once.  A kind that is
  too long for one worker is two groups: Spark's tests that share a session, and those that start it in separate
  processes; JVM tests that share one Apache Kafka, and those whose tools, clients and brokers start for each file;
  clusters, of which each file has its own anyway.
* Each long test with its own broker is a group.

The order matters because the run ends when its last group does: heavy groups start first, then long tests, then files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# A folder or a file of the tests, and its group.
HEAVY: Final[Mapping[str, str]] = {
    # Apache Kafka's broker, its tools, Java's clients, librdkafka's runner: those of tests/interop start their own.
    "tests/peers": "jvm",
    # Those with the fixture that runs each broker in turn, including Apache Kafka's.
    "tests/integration/test_aio_": "jvm",
    "tests/integration/test_client_": "jvm",
    "tests/integration/test_fetch_": "jvm",
    "tests/integration/test_message_streams.py": "jvm",
    "tests/integration/test_consumer.py": "jvm",
    "tests/integration/test_paper_producer.py": "jvm",
    "tests/integration/test_simple_consumer.py": "jvm",
    "tests/integration/test_topic_admin_apis.py": "jvm",
    "tests/integration/test_transactional_producer.py": "jvm",
    "tests/integration/test_quota_apis.py": "jvm",
    "tests/integration/test_topic_partitions.py": "jvm",
    "tests/integration/test_group_settings.py": "jvm",
    "tests/integration/test_changed_transactions.py": "jvm tools",
    "tests/examples/test_clean_views.py": "jvm tools",
    "tests/interop/clients/test_apache_group_tools.py": "jvm tools",
    "tests/interop/clients/test_other_languages.py": "jvm tools",
    "tests/interop/clients/test_testing_examples.py": "jvm tools",
    "tests/interop/probes": "jvm tools",
    "tests/interop/security": "jvm tools",
    "tests/interop/librdkafka": "jvm tools",
    "tests/interop/serializers": "jvm tools",
    "tests/interop/test_apache_tools.py": "jvm tools",
    "tests/interop/test_acl_tool.py": "jvm tools",
    "tests/interop/test_quota_tool.py": "jvm tools",
    "tests/interop/test_compacted_topics.py": "jvm tools",
    "tests/interop/test_dump_": "jvm tools",
    "tests/interop/test_fetch_sessions.py": "jvm tools",
    "tests/interop/test_group_clients.py": "jvm tools",
    "tests/interop/test_transactions.py": "jvm tools",
    "tests/interop/test_log_import.py": "jvm tools",
    "tests/interop/test_repaired_log.py": "jvm tools",
    "tests/interop/test_secure_listeners.py": "jvm tools",
    "tests/interop/exactly_once": "jvm tools",
    "tests/interop/franz_go": "jvm tools",
    "tests/interop/test_transactional_clients.py": "jvm tools",
    "tests/contract/membership": "jvm",
    "tests/mirror/test_with_apache_kafka.py": "jvm",
    # A ZooKeeper that the files share, or their own.
    "tests/contract": "zookeeper",
    "tests/integration/test_guide.py": "zookeeper",
    "tests/integration/test_operating_page.py": "zookeeper",
    "tests/integration/test_running_zookeeper.py": "zookeeper",
    "tests/integration/test_tree_groups.py": "zookeeper",
    # Clusters: three brokers and a ZooKeeper each.
    "tests/cluster/test_adopt.py": "cluster faults",
    "tests/cluster/test_audit.py": "cluster",
    "tests/cluster/test_cluster_metrics.py": "cluster faults",
    "tests/cluster/test_damaged_replicas.py": "cluster faults",
    "tests/cluster/test_apache_reassignment_tools.py": "jvm tools",
    "tests/cluster/test_cluster_moves.py": "cluster",
    "tests/cluster/test_cluster_up.py": "cluster faults",
    "tests/cluster/test_members.py": "cluster",
    "tests/cluster/test_replication.py": "cluster",
    "tests/cluster/test_rolling_restart.py": "cluster",
    "tests/cluster/test_secure_cluster.py": "cluster",
    "tests/cluster/test_schema_registries.py": "cluster faults",
    "tests/cluster/test_stale_directories.py": "cluster faults",
    "tests/cluster/test_doctor_of_a_cluster.py": "cluster faults",
    "tests/cluster/test_start_without_zookeeper.py": "cluster faults",
    "tests/cluster/test_status_without_zookeeper.py": "cluster faults",
    "tests/cluster/test_follower_fetching.py": "cluster",
    "tests/cluster/test_full_disks.py": "cluster faults",
    "tests/cluster/test_kills.py": "cluster",
    "tests/cluster/test_joined_broker.py": "cluster faults",
    "tests/cluster/test_loop_syncs.py": "cluster faults",
    "tests/cluster/test_stuck_syncs.py": "cluster faults",
    "tests/cluster/test_moved_coordinators.py": "cluster faults",
    "tests/cluster/test_moved_transactions.py": "cluster faults",
    "tests/cluster/test_moves_under_load.py": "cluster",
    "tests/mirror/test_between_clusters.py": "cluster",
    "tests/connectors/test_groups_on_zookeeper.py": "cluster",
    "tests/connectors/test_groups_on_apache_kafka.py": "jvm tools",
    "tests/connectors/test_planted_faults.py": "cluster",
    "tests/connectors/test_tree_log.py": "zookeeper",
    # One reading of all sources.
    "tests/architecture": "sources",
    # Programs that start Spark: those that a prefix of the next kind covers, too, come first.
    "tests/integration/spark/test_spark_fixture.py": "spark programs",
    "tests/integration/spark/test_spark_java.py": "spark programs",
    "tests/integration/spark/test_spark_sessions.py": "spark programs",
    "tests/integration/spark_cluster": "spark programs",
    "tests/integration/spark_versions": "spark programs",
    # One Spark session.
    "tests/integration/spark/": "spark",
    # More programs that start Spark.
    "tests/cluster/test_spark_through_kills.py": "spark programs",
    "tests/examples/test_abuse_alert.py": "spark programs",
    "tests/examples/test_examples_page_of_spark.py": "spark programs",
    "tests/examples/test_related_items.py": "spark programs",
    "tests/loads": "spark programs",
    "tests/sink/test_sink_through_kills.py": "spark programs",
    "tests/integration/test_demo.py": "spark programs",
    "tests/integration/test_guide_of_spark.py": "spark programs",
    "tests/integration/test_pipelines.py": "spark programs",
    "tests/interop/clients/test_spark_connector.py": "spark programs",
}
# The heavy groups as they start: before all others, for there are more of them than workers, and the run ends when the
# last one does.  Those that mostly wait come first: beside them types are checked, Spark's classes are archived and
# clients are built, which Spark's groups and the tools need.
START_ORDER: Final = (
    "cluster",
    "cluster faults",
    "jvm",
    "zookeeper",
    "spark",
    "spark programs",
    "jvm tools",
    "sources",
)
# Each test of these files is a group: it has its own broker and clients, and mostly waits.
SEPARATE: Final = (
    "tests/cluster/test_cut_off_leaders.py",
    "tests/cluster/test_short_chaos.py",
    "tests/history/test_histories.py",
    "tests/kill/test_kill.py",
    "tests/transactions_history/test_histories.py",
)
# Files whose tests take half a minute and more each.
LONG: Final = (
    "tests/cluster/",
    "tests/connectors/",
    "tests/examples/",
    "tests/integration/lake/",
    "tests/integration/test_dev.py",
    "tests/integration/test_schema_registry.py",
    "tests/mirror/",
    "tests/simulation/",
)
# Files of seconds, which fill what the others leave.
SHORT: Final = ("tests/unit/",)


def group_of(node_id: str) -> str:
    """The group of a test: a heavy group's name, its own node id, or its file."""
    for prefix, group in HEAVY.items():
        if node_id.startswith(prefix):
            return group
    file, _, _ = node_id.partition("::")
    return node_id if file in SEPARATE else file


def start_rank(group: str) -> int:
    """Groups of the lowest rank start first."""
    if group in START_ORDER:
        return START_ORDER.index(group)
    if group.startswith((*SEPARATE, *LONG)):
        return len(START_ORDER)
    return len(START_ORDER) + (2 if group.startswith(SHORT) else 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """This scheduler with `--dist loadgroup`; xdist's with any other."""
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.worker_scheduler import GroupScheduler

    return GroupScheduler(config, log)
