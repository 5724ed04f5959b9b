"""Peers are downloaded or built once, into a cache outside the tree, where they appear whole or not at all."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from tests.peers.kafka_jars import cache_dir
from tests.peers.unavailable import PeerUnavailable

# The longest wait for another process that fills the same directory: a test that needs a build has this time
# in addition to its own.
BROUGHT_WITHIN_S: Final = 600.0
LOOK_EVERY_S: Final = 0.2
# `./dev test` gives its processes a name for the run.  A failed download or build is then tried once in that run.
RUN_VARIABLE: Final = "OTTLA_TEST_RUN"


def keep_in_cache(name: str, bring: Callable[[Path], None], within_s: float = BROUGHT_WITHIN_S) -> Path:
    """The directory `name` of the cache; `bring` fills a new one that then gets this name.

    Several processes may call at once: one fills it, under a lock of this name, the others wait for it.  When `bring`
    raises PeerUnavailable, nothing is kept, and the others of the same run raise the same text at once.  Raises
    PeerUnavailable, too, when the wait takes longer than `within_s`.
    """
    kept = cache_dir() / name
    if kept.is_dir():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    failure = kept.with_name(f"{name}.failure")
    with kept.with_name(f"{name}.lock").open("w") as lock, _held(lock, name, within_s):
        if kept.is_dir():
            return kept
        _raise_failure_of_this_run(failure)
        try:
            with tempfile.TemporaryDirectory(dir=kept.parent, prefix="download-") as scratch:
                fresh = Path(scratch) / "fresh"
                fresh.mkdir()
                bring(fresh)
                fresh.rename(kept)
        except PeerUnavailable as reason:
            failure.write_text(f"{os.environ.get(RUN_VARIABLE, '')}\n{reason}", encoding="utf-8")
            raise
        failure.unlink(missing_ok=True)
    return kept


@contextmanager
def _held(lock: IO[str], name: str, within_s: float) -> Iterator[None]:
    give_up_s = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up_s:
                raise PeerUnavailable(f"another process has not brought {name} within {within_s:g} s") from None
            time.sleep(LOOK_EVERY_S)
        else:
            break
    yield


def _raise_failure_of_this_run(failure: Path) -> None:
    run = os.environ.get(RUN_VARIABLE)
    if run and failure.exists():
        of_run, _, reason = failure.read_text(encoding="utf-8").partition("\n")
        if of_run == run:
            raise PeerUnavailable(reason)
