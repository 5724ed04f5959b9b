from __future__ import annotations

import subprocess
import sys

import pytest

resource = pytest.importorskip("resource")

_PROGRAM = """
import resource
from ottla.runtime.process import raise_open_files_limit
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
found = raise_open_files_limit()
assert found == (64, hard), found
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
assert raise_open_files_limit() == (hard, hard)
"""


def test_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    # In a process of its own: the limit would stay for the other tests.
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=30)
