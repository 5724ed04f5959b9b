"""pyright accepts the program with every public name, in its strict mode, as mypy does in `./dev check`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.source_tree import ROOT
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.npm import find_node, install_packages
from tests.peers.unavailable import PeerUnavailable

PROGRAM: Final = ROOT / "tests" / "unit" / "client" / "typed_program.py"
# Of pyright 1.1.
NODE_VERSION_MIN: Final = (14, 0, 0)
CHECKS_WITHIN_S: Final = 300
WRONG: Final = """\
import ottla

producer = ottla.Producer("localhost:9092")
producer.send("orders", 7)
producer.snd("orders", b"7")
offset: str = producer.send("orders", b"7").wait().offset
"""

pytestmark = pytest.mark.timeout(BROUGHT_WITHIN_S + CHECKS_WITHIN_S)


@pytest.fixture(scope="module")
def pyright() -> list[str]:
    try:
        node = find_node(NODE_VERSION_MIN, "pyright")
        packages = install_packages(Path(__file__).with_name("pyright"), "pyright")
    except PeerUnavailable as reason:
        pytest.skip(f"pyright is not available: {reason}")
    return [node, str(packages / "node_modules" / "pyright" / "index.js")]


def _check(pyright: list[str], directory: Path) -> str:
    """What pyright prints of the programs in a directory, to which Ottla is an installed package with types."""
    (directory / "pyrightconfig.json").write_text(
        json.dumps({"pythonVersion": "3.11", "typeCheckingMode": "strict"}), encoding="utf-8"
    )
    done = subprocess.run(
        [*pyright, "--project", str(directory), "--pythonpath", sys.executable],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=CHECKS_WITHIN_S,
        check=False,
    )
    assert done.returncode in (0, 1), f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_program_with_every_public_name_is_accepted(pyright: list[str], tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path)
    assert _check(pyright, tmp_path) == "0 errors, 0 warnings, 0 informations\n"


def test_wrong_calls_are_found(pyright: list[str], tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    printed = _check(pyright, tmp_path)
    assert {int(line) for line in re.findall(r"wrong\.py:(\d+):\d+ - error", printed)} == {4, 5, 6}, printed
