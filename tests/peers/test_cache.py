"""The cache of the peers' files: filled once, whole or not at all, and a failure is not repeated within a run."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.peers.cache import RUN_VARIABLE, keep_in_cache
from tests.peers.unavailable import PeerUnavailable

NAME = "a-peer"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("OTTLA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv(RUN_VARIABLE, "this run")
    return tmp_path


def fill(fresh: Path) -> None:
    (fresh / "file").write_text("whole")


def refuse(fresh: Path) -> None:
    (fresh / "file").write_text("half of it")
    raise PeerUnavailable("the compiler said no")


def never(_: Path) -> None:
    raise AssertionError("it was brought a second time")


def assert_not_brought(bring: Callable[[Path], None], reason: str, within_s: float = 0) -> None:
    with pytest.raises(PeerUnavailable, match=reason):
        keep_in_cache(NAME, bring, within_s)


def test_directory_is_filled_once() -> None:
    kept = keep_in_cache(NAME, fill)
    assert (kept / "file").read_text() == "whole"
    assert keep_in_cache(NAME, never) == kept


def test_failed_build_is_not_repeated_within_a_run(cache: Path) -> None:
    assert_not_brought(refuse, "the compiler said no")
    assert not (cache / NAME).exists()
    assert_not_brought(never, "the compiler said no")


def test_failed_build_is_repeated_in_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_not_brought(refuse, "the compiler said no")
    monkeypatch.setenv(RUN_VARIABLE, "the next run")
    assert (keep_in_cache(NAME, fill) / "file").exists()


def test_failed_build_is_repeated_outside_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_VARIABLE)
    assert_not_brought(refuse, "the compiler said no")
    assert (keep_in_cache(NAME, fill) / "file").exists()


def test_wait_for_another_process_is_bounded(cache: Path) -> None:
    with (cache / f"{NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert_not_brought(never, "not brought a-peer within 0 s")
        other = keep_in_cache("another-peer", fill)
    assert (other / "file").exists(), "one build held up another"
