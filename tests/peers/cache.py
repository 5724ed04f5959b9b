"""What peers need is brought once, into a cache outside the tree, and appears there whole or not at all."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.peers.kafka_jars import cache_dir


def keep_in_cache(name: str, bring: Callable[[Path], None]) -> Path:
    """The directory `name` of the cache; `bring` fills a new one that then gets this name.

    Several processes may ask at once: one brings, under a lock, the others wait for it.  What `bring` raises is
    passed on and nothing is kept.
    """
    kept = cache_dir() / name
    if kept.is_dir():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with (kept.parent / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.is_dir():
            with tempfile.TemporaryDirectory(dir=kept.parent, prefix="download-") as scratch:
                fresh = Path(scratch) / "fresh"
                fresh.mkdir()
                bring(fresh)
                fresh.rename(kept)
    return kept
