"""The machine: what it is, and what it can do at most."""

from __future__ import annotations

import os
import platform
import re
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
PAGE_CACHE_BYTES: Final = 1 << 30
WARM_BYTES: Final = 4 << 30
LOOPBACK_S: Final = 1.0
SYNC_COUNT: Final = 200


def describe_machine(work_dir: Path) -> dict[str, str | int]:
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "memory_bytes": memory_bytes,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "read_ahead_kb": _read_ahead_kb(work_dir),
    }


def describe_commit(root: Path) -> dict[str, str | bool]:
    """The commit that is measured, and whether the tree differs from it; results are no part of it."""
    head = _git(root, "rev-parse", "HEAD") or "none"
    return {
        "commit": head,
        "has_local_changes": bool(_git(root, "status", "--porcelain", "--", "src", "bench")),
    }


def warm_memory(work_dir: Path) -> None:
    """Use and free 4 GB of page cache (at most a quarter of memory).

    A virtual machine gets memory from its host at first use, which is several times slower than later ones: without
    this, the first peer of a run would pay for it.
    """
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    block = os.urandom(MIB)
    with tempfile.TemporaryFile(dir=work_dir, buffering=0) as file:
        for _ in range(min(WARM_BYTES, memory_bytes // 4) // MIB):
            file.write(block)


def measure_limits(work_dir: Path) -> dict[str, float]:
    """What no broker here can pass: new page-cache pages, loopback, and one small durable append."""
    return {
        "page_cache_write_mb_per_s": _page_cache_write_mb_per_s(work_dir),
        "loopback_mb_per_s": _loopback_mb_per_s(),
        "fdatasync_4k_p50_ms": _fdatasync_p50_ms(work_dir),
    }


def _page_cache_write_mb_per_s(work_dir: Path) -> float:
    block = os.urandom(MIB)
    with tempfile.TemporaryFile(dir=work_dir, buffering=0) as file:
        os.sync()
        started = time.perf_counter()
        for _ in range(PAGE_CACHE_BYTES // MIB):
            file.write(block)
        return PAGE_CACHE_BYTES / (time.perf_counter() - started) / 1e6


def _fdatasync_p50_ms(work_dir: Path) -> float:
    sync = getattr(os, "fdatasync", os.fsync)  # macOS has only fsync
    block = os.urandom(4096)
    durations_s = []
    with tempfile.TemporaryFile(dir=work_dir, buffering=0) as file:
        os.sync()
        for _ in range(SYNC_COUNT):
            file.write(block)
            started = time.perf_counter()
            sync(file.fileno())
            durations_s.append(time.perf_counter() - started)
    return statistics.median(durations_s) * 1000


def _loopback_mb_per_s() -> float:
    """One TCP connection, 1 MiB at a time; both ends spend their time in the kernel, outside the GIL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    with sender, receiver:
        thread = threading.Thread(target=_send_until_closed, args=(sender,), daemon=True)
        thread.start()
        buffer = bytearray(MIB)
        received_bytes = 0
        started = time.perf_counter()
        while (elapsed_s := time.perf_counter() - started) < LOOPBACK_S:
            received_bytes += receiver.recv_into(buffer)
        receiver.close()
        thread.join()
    return received_bytes / elapsed_s / 1e6


def _send_until_closed(sender: socket.socket) -> None:
    block = os.urandom(MIB)
    while True:
        try:
            sender.sendall(block)
        except OSError:  # the receiver has seen enough
            return


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _read_ahead_kb(work_dir: Path) -> int:
    """Of the disk below `work_dir`; -1 if unknown.  A fault in a mapped file brings in that much at once."""
    device = os.stat(work_dir).st_dev
    path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    for queue in (path / "queue", path.resolve().parent / "queue"):
        try:
            return int((queue / "read_ahead_kb").read_text())
        except OSError:
            continue  # a partition has no queue of its own: its disk's is one directory up
    return -1


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
