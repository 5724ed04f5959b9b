"""The embedded home: what is visible when, and what happens when the journal fails."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.coordination.embedded.backend import ZXID_BLOCK, EmbeddedBackend
from ottla.coordination.embedded.errors import TreeStoreError, TreeStoreFailed, TreeStoreForeign, TreeStoreFull
from ottla.coordination.embedded.journal import Journal, JournalEntry
from ottla.coordination.embedded.node_table import TreeChange
from ottla.coordination.tree import ANY_VERSION, BadVersion, NodeExists, SessionLost, SessionState, Tree
from ottla.model.error_code import ErrorCode
from ottla.runtime.clock import SystemClock


class GatedJournal(Journal):
    """A journal whose commits wait for the test, and fail when it says so."""

    def __init__(self, inner: Journal) -> None:
        super().__init__(inner.path, inner._connection)
        self.gate = threading.Event()
        self.gate.set()
        self.began = threading.Event()
        self.failure: TreeStoreError | None = None

    def commit(self, entry: JournalEntry) -> None:
        self.began.set()
        self.gate.wait(10)
        if self.failure is not None:
            raise self.failure
        super().commit(entry)


@asynccontextmanager
async def gated(path: Path) -> AsyncIterator[tuple[EmbeddedBackend, GatedJournal]]:
    thread = ThreadPoolExecutor(1)
    journal = await asyncio.get_running_loop().run_in_executor(thread, lambda: GatedJournal(Journal.open(str(path))))
    table, ceiling = await asyncio.get_running_loop().run_in_executor(thread, journal.load)
    home = EmbeddedBackend(journal, table, ceiling, thread, SystemClock())
    try:
        yield home, journal
    finally:
        journal.failure = None
        journal.gate.set()
        await home.close()


async def turn_the_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def hold(journal: GatedJournal, tree: Tree, path: str) -> asyncio.Task[None]:
    """A write that has reached the journal and waits there."""
    journal.began.clear()
    journal.gate.clear()
    writing = asyncio.ensure_future(tree.create(path))
    await asyncio.get_running_loop().run_in_executor(None, journal.began.wait, 10)
    return writing


async def test_change_is_visible_acknowledged_and_watched_only_after_its_commit(tmp_path: Path) -> None:
    async with gated(tmp_path / "tree") as (home, journal):
        tree = await home.connect()
        called: list[None] = []
        await tree.exists("/a", watch=lambda: called.append(None))
        writing = await hold(journal, tree, "/a")
        await turn_the_loop()
        assert await tree.exists("/a") is None
        assert (called, writing.done()) == ([], False)
        journal.gate.set()
        await writing
        await turn_the_loop()
        assert await tree.exists("/a") is not None
        assert called == [None]


async def test_failure_is_reported_only_when_its_cause_is_durable(tmp_path: Path) -> None:
    async with gated(tmp_path / "tree") as (home, journal):
        tree = await home.connect()
        journal.gate.clear()
        first, second = asyncio.ensure_future(tree.create("/a")), asyncio.ensure_future(tree.create("/a"))
        await turn_the_loop()
        assert not second.done()
        journal.gate.set()
        await first
        with pytest.raises(NodeExists):
            await second


async def test_writes_that_wait_for_a_commit_share_the_next_one(tmp_path: Path) -> None:
    async with gated(tmp_path / "tree") as (home, journal):
        tree = await home.connect()
        writing = await hold(journal, tree, "/a")
        waiting = [asyncio.ensure_future(tree.create(f"/n{number}")) for number in range(100)]
        await turn_the_loop()
        before = home.commits_count
        journal.gate.set()
        await asyncio.gather(writing, *waiting)
        assert home.commits_count == before + 2


async def test_writes_of_one_turn_share_a_commit(tmp_path: Path) -> None:
    async with gated(tmp_path / "tree") as (home, _):
        tree = await home.connect()
        before = home.commits_count
        await asyncio.gather(*(tree.create(f"/n{number}") for number in range(100)))
        assert home.commits_count == before + 1


async def test_ephemeral_nodes_cost_no_commit_below_the_ceiling(tmp_path: Path) -> None:
    async with gated(tmp_path / "tree") as (home, _):
        tree = await home.connect()  # raises the ceiling
        before = home.commits_count
        for number in range(10):
            await tree.create(f"/n{number}", ephemeral=True)
        assert home.commits_count == before


async def test_ceiling_is_durable_before_a_change_id_above_it_is_given(tmp_path: Path) -> None:
    async with gated(tmp_path / "tree") as (home, journal):
        tree = await home.connect()
        home._zxid = ZXID_BLOCK + home._zxid - 2
        before = home.commits_count
        await tree.create("/a", ephemeral=True)
        writing = await hold(journal, tree, "/b")  # also ephemeral would have to wait: it is above
        assert not writing.done()
        journal.gate.set()
        await writing
        assert home.commits_count > before
        assert home._zxid_ceiling >= home._zxid


async def test_full_disk_fails_the_batch_and_leaves_the_tree_as_it_was(tmp_path: Path) -> None:
    async with gated(tmp_path / "tree") as (home, journal):
        tree = await home.connect()
        await tree.create("/a", b"before")
        journal.failure = TreeStoreFull(journal.path, "the disk is full")
        attempts = (tree.set("/a", b"after", 0), tree.create("/b"), tree.set("/a", b"", 7))
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert all(isinstance(result, TreeStoreFull) for result in results)
        assert (await tree.get("/a")).data == b"before"
        journal.failure = None
        await tree.set("/a", b"after", 0)
        await tree.create("/b")
        with pytest.raises(BadVersion):
            await tree.set("/a", b"", 7)


async def test_session_ends_even_while_the_disk_is_full(tmp_path: Path) -> None:
    async with gated(tmp_path / "tree") as (home, journal):
        tree, other = await home.connect(), await home.connect()
        await tree.create("/mine", ephemeral=True)
        journal.failure = TreeStoreFull(journal.path, "the disk is full")
        refused = asyncio.ensure_future(tree.create("/a"))
        await asyncio.sleep(0)
        await tree.close()
        with pytest.raises(TreeStoreFull):
            await refused
        assert await other.exists("/mine") is None


@pytest.mark.parametrize("failure", [TreeStoreFull, TreeStoreFailed])
def test_client_whose_change_failed_on_the_disk_gets_the_error_of_the_disk(failure: type[TreeStoreError]) -> None:
    assert failure("tree.sqlite", "the disk is full").error_code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_unknown_outcome_ends_all_sessions_for_ever(tmp_path: Path) -> None:
    async with gated(tmp_path / "tree") as (home, journal):
        tree, other = await home.connect(), await home.connect()
        told: list[SessionState] = []
        called: list[None] = []
        other.add_session_listener(told.append)
        await other.exists("/a", watch=lambda: called.append(None))
        journal.failure = TreeStoreFailed(journal.path, "input/output error")
        with pytest.raises(TreeStoreFailed):
            await tree.create("/a")
        await turn_the_loop()
        assert told == [SessionState.LOST]
        assert called == [None]
        with pytest.raises(SessionLost):
            await other.get("/")
        journal.failure = None  # the disk seems well again: what was lost stays unknown
        with pytest.raises(TreeStoreFailed):
            await home.connect()


async def test_bug_while_a_batch_is_applied_leaves_no_caller_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall(_: TreeChange) -> None:
        raise AssertionError("a bug")

    async with gated(tmp_path / "tree") as (home, _):
        tree = await home.connect()
        seen: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
        monkeypatch.setattr(home.committed, "apply", fall)
        for write in (tree.create("/ephemeral", ephemeral=True), home.connect()):
            with pytest.raises(TreeStoreFailed, match="a bug"):
                await write
        assert [str(context["exception"]) for context in seen] == ["a bug"]


async def test_caller_that_gave_up_does_not_disturb_the_others(tmp_path: Path) -> None:
    async with gated(tmp_path / "tree") as (home, journal):
        tree = await home.connect()
        writing = await hold(journal, tree, "/a")
        impatient, patient = asyncio.ensure_future(tree.create("/b")), asyncio.ensure_future(tree.create("/c"))
        await turn_the_loop()
        impatient.cancel()
        journal.gate.set()
        await asyncio.gather(writing, patient)
        await tree.set("/c", b"x", ANY_VERSION)


async def test_home_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "tree").write_bytes(b"no database" * 1000)
    with pytest.raises(TreeStoreForeign):
        await EmbeddedBackend.open(str(tmp_path / "tree"))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tree-journal")]


async def test_caller_that_gives_up_while_opening_leaves_no_lock(tmp_path: Path) -> None:
    opening = asyncio.ensure_future(EmbeddedBackend.open(str(tmp_path / "tree")))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    home = await EmbeddedBackend.open(str(tmp_path / "tree"))
    await home.close()


async def test_closed_home_takes_no_sessions_and_leaves_no_thread_or_log(tmp_path: Path) -> None:
    home = await EmbeddedBackend.open(str(tmp_path / "tree"))
    tree = await home.connect()
    await tree.create("/a")
    await home.close()
    with pytest.raises(SessionLost):
        await home.connect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tree-journal")]
    assert os.listdir(tmp_path) == ["tree"]
