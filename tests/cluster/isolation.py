"""A run in separate namespaces: network, mounts and processes that no other process sees and that end with the run.

Nothing has a name outside: when the run ends in any way, the kernel removes its mounts, interfaces and processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

_UNSHARE: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_COMMANDS: Final = ("unshare", "nsenter", "mount", "umount", "mkfs.xfs", "losetup", "ip", "nft", "strace")
_PACKAGES: Final = "util-linux, mount, xfsprogs, iproute2, nftables and strace of Debian"
# Set when the run is already in its namespaces.
_ENTERED: Final = "OTTLA_TEST_NAMESPACES"
_TRIALS: Final = (
    "losetup -f",
    "ip link add dev trial type bridge",
    "nft add table inet trial",
    "ip tuntap add dev tunnel mode tun",
)
_TRIAL_S: Final = 30


def is_isolated() -> bool:
    return _ENTERED in os.environ


def missing() -> str | None:
    """The reason why this process cannot have separate namespaces; None when it can."""
    if not sys.platform.startswith("linux"):
        return "namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root may make namespaces and mounts"
    absent = [command for command in _COMMANDS if shutil.which(command) is None]
    if absent:
        return f"there is no {', '.join(absent)} here (in {_PACKAGES})"
    # Also inside a container that is root's: whether the kernel lets it.
    trial = subprocess.run(
        [*_UNSHARE, "sh", "-c", " && ".join(_TRIALS)],
        capture_output=True,
        text=True,
        timeout=_TRIAL_S,
        check=False,
    )
    return None if trial.returncode == 0 else f"the system refuses: {trial.stderr.strip()}"


def enter(command: Sequence[str]) -> NoReturn:
    """Replace this process by `command` in separate namespaces."""
    sys.stdout.flush()
    os.execvpe(_UNSHARE[0], [*_UNSHARE, *command], {**os.environ, _ENTERED: "1"})
