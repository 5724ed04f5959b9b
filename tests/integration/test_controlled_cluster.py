"""A cluster that a test controls: what its fixture does not show (test_pytest_plugin.py has the rest)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.eventually import eventually


def test_cluster_and_its_directories_are_gone_when_the_tests_process_is_killed() -> None:
    program = """
import sys
from ottla.testing import ControlledCluster
cluster = ControlledCluster(1).start()
cluster.tree.pause()
cluster.broker(1).pause()
print(cluster.tree.pid, cluster.broker(1).pid, cluster.data_dir, cluster.broker(1).data_dir, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tests:
        assert tests.stdout is not None
        *pids, tree, broker = tests.stdout.readline().decode().split()
        assert Path(tree).is_dir()
        assert Path(broker).is_dir()
        tests.kill()
    left = [Path(tree), Path(broker), *(Path("/proc") / pid for pid in pids)]
    eventually(lambda: [path for path in left if path.exists()], lambda seen: not seen)
