"""A Spark that has MERGE for lake tables: the formats' jars for the newest Spark come some months after it.

In November 2026 Maven Central has `iceberg-spark-runtime` for Spark 4.0 and 4.1, and none for 4.2 or 4.3.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.interop.clients.spark_connector import ARTIFACTS as CONNECTOR
from tests.peers.cache import keep_in_cache
from tests.peers.kafka_jars import find_java
from tests.peers.maven import copy_artifact
from tests.peers.unavailable import PeerUnavailable

SPARK: Final = "4.0.1"
# The connector's own dependencies are those of the newer one.
ARTIFACTS: Final = (
    "io.delta:delta-spark_2.13:4.0.1",
    "io.delta:delta-storage:4.0.1",
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",
    *CONNECTOR[1:],
)
INSTALL_TIMEOUT_S: Final = 900


def merge_jars() -> list[Path]:
    """Raises PeerUnavailable or KafkaUnavailable."""
    find_java()
    digest = hashlib.sha256(" ".join(ARTIFACTS).encode()).hexdigest()[:8]
    return sorted(keep_in_cache(f"merge-jars-{digest}", _bring_jars).glob("*.jar"))


def merge_python() -> Path:
    """The Python of an environment with this Spark and nothing of Ottla's.  Raises PeerUnavailable."""
    digest = hashlib.sha256(f"{sys.version} {SPARK}".encode()).hexdigest()[:8]
    return keep_in_cache(f"merge-spark-{SPARK}-{digest}", _bring_spark, INSTALL_TIMEOUT_S) / "bin" / "python"


def _bring_jars(fresh: Path) -> None:
    for artifact in ARTIFACTS:
        copy_artifact(artifact, fresh)


def _bring_spark(home: Path) -> None:
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(home)], [*pip, f"pyspark=={SPARK}"]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise PeerUnavailable(f"pip could not install pyspark {SPARK}: {done.stderr[-500:]}")
