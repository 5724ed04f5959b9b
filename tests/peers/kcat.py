"""kcat, as Debian has it (librdkafka 2.0): found on the PATH, or installed where that needs no confirmation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


class KcatUnavailable(RuntimeError):
    """The reason why there is no kcat here."""


def find_kcat() -> str:
    """The program's path.  Raises `KcatUnavailable`."""
    found = shutil.which("kcat") or shutil.which("kafkacat")
    if found is None:
        raise KcatUnavailable("kcat is not on the PATH (Debian and Ubuntu: apt-get install kcat)")
    return found


def install() -> None:
    """Install it by apt where this process may; raises `KcatUnavailable`."""
    if shutil.which("kcat") or shutil.which("kafkacat"):
        return
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise KcatUnavailable("installing kcat needs Debian or Ubuntu, and root")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "kcat"]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode != 0:
            raise KcatUnavailable(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")
