"""Every guarantee of `coordination.tree.Tree`, tested at every home."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ottla.coordination.tree import (
    ANY_VERSION,
    NO_OWNER,
    NODE_BYTES_MAX,
    REQUEST_BYTES_MAX,
    BadVersion,
    CheckNode,
    CreateNode,
    DeleteNode,
    NoChildrenForEphemerals,
    NodeExists,
    NodeTooLarge,
    NoNode,
    NotEmpty,
    RequestTooLarge,
    SessionLost,
    SessionState,
    SetNode,
    Tree,
    TreeError,
    request_bytes,
)
from ottla.runtime.clock import SystemClock
from tests.contract.tree_backends import TreeBackend, settle, until


@asynccontextmanager
async def connected(home: TreeBackend) -> AsyncIterator[Tree]:
    async with home.running() as running:
        yield await running.connect()


async def test_node_reads_back_as_it_was_created(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a", b"\x00\xffdata")
        node = await tree.get("/a")
        assert node.data == b"\x00\xffdata"
        assert node.stat.version == 0
        assert node.stat.czxid == node.stat.mzxid > 0
        assert node.stat.ephemeral_owner == NO_OWNER
        assert node.stat.children_count == 0
        assert node.stat.ctime_ms > 1_600_000_000_000


async def test_create_refuses_an_existing_path(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a", b"first")
        with pytest.raises(NodeExists) as failure:
            await tree.create("/a", b"second")
        assert failure.value.path == "/a"
        assert (await tree.get("/a")).data == b"first"


async def test_create_refuses_a_node_without_parent(home: TreeBackend) -> None:
    async with connected(home) as tree:
        with pytest.raises(NoNode):
            await tree.create("/a/b")


@pytest.mark.parametrize("path", ["a", "", "//", "/a/", "/a//b", "/a/../b", "/./a", "/a\x00", "/a\ud800"])
async def test_paths_that_are_not_plain_are_a_bug_of_the_caller(home: TreeBackend, path: str) -> None:
    async with connected(home) as tree:
        with pytest.raises(ValueError):
            await tree.create(path)
        with pytest.raises(ValueError):
            await tree.exists(path)


async def test_operations_on_a_missing_node_raise(home: TreeBackend) -> None:
    async with connected(home) as tree:
        for operation in (tree.get("/no"), tree.set("/no", b"", ANY_VERSION), tree.delete("/no"), tree.children("/no")):
            with pytest.raises(NoNode) as failure:
                await operation
            assert failure.value.path == "/no"
        assert await tree.exists("/no") is None


async def test_get_many_keeps_the_order_and_marks_missing_nodes(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a", b"1")
        await tree.create("/b", b"2")
        nodes = await tree.get_many(["/b", "/missing", "/a"])
        assert [node and node.data for node in nodes] == [b"2", None, b"1"]


async def test_set_returns_the_stat_of_the_next_get(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a", b"1")
        created = (await tree.get("/a")).stat
        stat = await tree.set("/a", b"2", created.version)
        node = await tree.get("/a")
        assert node == (b"2", stat)
        assert stat.version == created.version + 1
        assert stat.czxid == created.czxid
        assert stat.mzxid > created.mzxid


async def test_set_and_delete_refuse_a_version_that_has_passed(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a", b"1")
        await tree.set("/a", b"2", 0)
        with pytest.raises(BadVersion):
            await tree.set("/a", b"3", 0)
        with pytest.raises(BadVersion):
            await tree.delete("/a", 0)
        assert (await tree.get("/a")).data == b"2"
        await tree.delete("/a", 1)
        assert await tree.exists("/a") is None


async def test_any_version_matches_every_version(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a", b"1")
        await tree.set("/a", b"2", ANY_VERSION)
        await tree.delete("/a", ANY_VERSION)
        assert await tree.exists("/a") is None


async def test_versions_restart_but_change_ids_do_not_when_a_node_is_recreated(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a")
        await tree.set("/a", b"x", 0)
        before = (await tree.get("/a")).stat
        await tree.delete("/a")
        await tree.create("/a")
        after = (await tree.get("/a")).stat
        assert after.version == 0
        assert after.czxid > before.mzxid


async def test_only_one_of_many_writers_wins_a_version(home: TreeBackend) -> None:
    async with home.running() as running:
        trees = [await running.connect() for _ in range(3)]
        await trees[0].create("/leader")
        attempts = (tree.set("/leader", f"{index}".encode(), 0) for index, tree in enumerate(trees * 4))
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(not isinstance(result, BaseException) for result in results) == 1
        assert all(isinstance(result, BadVersion) for result in results if isinstance(result, BaseException))
        assert (await trees[0].get("/leader")).stat.version == 1


async def test_writes_of_a_session_take_effect_in_the_order_of_their_starts(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a")
        stats = await asyncio.gather(*(tree.set("/a", f"{n}".encode(), n) for n in range(50)))
        assert [stat.version for stat in stats] == list(range(1, 51))
        assert (await tree.get("/a")).data == b"49"
        mzxids = [stat.mzxid for stat in stats]
        assert mzxids == sorted(set(mzxids))


async def test_node_at_the_size_limit_is_stored_and_a_larger_one_refused(home: TreeBackend) -> None:
    async with connected(home) as tree:
        with pytest.raises(NodeTooLarge):
            await tree.create("/a", b"x" * (NODE_BYTES_MAX + 1))
        await tree.create("/a")
        with pytest.raises(NodeTooLarge):
            await tree.set("/a", b"x" * (NODE_BYTES_MAX + 1), 0)
        assert (await tree.get("/a")).stat.version == 0


async def test_node_of_the_largest_size_is_kept(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a", b"x" * NODE_BYTES_MAX)
        await tree.set("/a", b"y" * NODE_BYTES_MAX, 0)
        assert (await tree.get("/a")).data == b"y" * NODE_BYTES_MAX


async def test_children_are_the_names_directly_below_in_order(home: TreeBackend) -> None:
    async with connected(home) as tree:
        for path in ("/a", "/a/c", "/a/b", "/a/b/deep", "/ab"):
            await tree.create(path)
        assert await tree.children("/a") == ["b", "c"]
        assert (await tree.get("/a")).stat.children_count == 2
        assert {"a", "ab"} <= set(await tree.children("/"))


async def test_delete_refuses_a_node_with_children(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a")
        await tree.create("/a/b")
        with pytest.raises(NotEmpty):
            await tree.delete("/a")
        await tree.delete("/a/b")
        await tree.delete("/a")


async def test_children_of_a_node_do_not_change_its_version(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a")
        before = (await tree.get("/a")).stat
        await tree.create("/a/b")
        after = (await tree.get("/a")).stat
        assert (after.version, after.mzxid) == (before.version, before.mzxid)


async def test_multi_applies_all_under_one_change_id_and_sees_its_own_effects(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/old", b"old")
        results = await tree.multi(
            [
                CreateNode("/a", b"1"),
                CreateNode("/a/b", b"2"),
                CheckNode("/a", 0),
                SetNode("/a", b"3", 0),
                DeleteNode("/old", 0),
            ]
        )
        node = await tree.get("/a")
        assert node.data == b"3"
        assert [result is None for result in results] == [True, True, True, False, True]
        changed = results[3]
        assert changed is not None
        assert (changed.version, changed.mzxid) == (1, node.stat.mzxid)
        assert node.stat.czxid == node.stat.mzxid == (await tree.get("/a/b")).stat.czxid
        assert await tree.exists("/old") is None


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (CreateNode("/a"), NodeExists),
        (CreateNode("/no/parent"), NoNode),
        (CreateNode("/ephemeral/child"), NoChildrenForEphemerals),
        (SetNode("/a", b"", 7), BadVersion),
        (SetNode("/no", b""), NoNode),
        (DeleteNode("/a"), NotEmpty),
        (DeleteNode("/a/b", 7), BadVersion),
        (CheckNode("/a", 7), BadVersion),
        (CheckNode("/no"), NoNode),
    ],
)
async def test_multi_applies_nothing_when_one_operation_fails(
    home: TreeBackend, failing: CreateNode | SetNode | DeleteNode | CheckNode, error: type[TreeError]
) -> None:
    async with connected(home) as tree:
        await tree.create("/a", b"before")
        await tree.create("/a/b")
        await tree.create("/ephemeral", ephemeral=True)
        before = await tree.get("/a")
        with pytest.raises(error) as failure:
            await tree.multi(
                [SetNode("/a", b"after"), CreateNode("/new"), DeleteNode("/a/b"), CreateNode("/a/b"), failing]
            )
        assert failure.value.operation_index == 4
        assert await tree.get("/a") == before
        assert await tree.exists("/new") is None
        assert await tree.exists("/a/b") is not None


async def test_multi_applies_nothing_when_a_path_is_not_plain(home: TreeBackend) -> None:
    async with connected(home) as tree:
        with pytest.raises(ValueError):
            await tree.multi([CreateNode("/new"), CreateNode("/new/")])
        await tree.create("/other")
        assert await tree.exists("/new") is None


async def test_writer_that_gets_a_conflict_reads_the_conflicting_write(home: TreeBackend) -> None:
    async with home.running() as running:
        trees = [await running.connect() for _ in range(4)]

        async def make(tree: Tree) -> bool:
            try:
                await tree.create("/once")
            except NodeExists:
                return await tree.exists("/once") is not None
            return True

        outcomes = await asyncio.gather(*(make(tree) for tree in trees))
        assert all(outcomes)


async def test_multi_with_a_delete_and_a_new_node_of_the_same_path_recreates_it(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a", b"1")
        await tree.create("/a/b")
        await tree.multi([SetNode("/a", b"2"), DeleteNode("/a/b"), DeleteNode("/a"), CreateNode("/a", b"3")])
        node = await tree.get("/a")
        assert (node.data, node.stat.version, node.stat.children_count) == (b"3", 0, 0)


async def test_readers_never_see_a_part_of_a_multi(home: TreeBackend) -> None:
    async with home.running() as running:
        writer, reader = await running.connect(), await running.connect()
        await writer.multi([CreateNode("/a", b"0"), CreateNode("/b", b"0")])
        done = False

        async def write() -> None:
            nonlocal done
            for number in range(1, 51):
                await writer.multi([SetNode("/a", b"%d" % number), SetNode("/b", b"%d" % number)])
            done = True

        async def read() -> None:
            while not done:
                first, second = int((await reader.get("/a")).data), int((await reader.get("/b")).data)
                assert first <= second  # /b was read later: it may be newer, never older
                await asyncio.sleep(0)

        await asyncio.gather(write(), read())


@pytest.mark.parametrize("node_bytes", [0, 400_000])
async def test_request_of_the_largest_size_is_accepted_and_a_larger_one_refused(
    home: TreeBackend, node_bytes: int
) -> None:
    """Many small nodes, whose paths and lists are most of the request, and few large ones."""
    async with connected(home) as tree:
        count = REQUEST_BYTES_MAX // request_bytes([CreateNode("/0000", b"x" * node_bytes)])
        assert count > 1
        operations = [CreateNode(f"/{number:04}", b"x" * node_bytes) for number in range(count)]
        await tree.multi(operations)
        assert len(await tree.children("/")) >= count
        rest_bytes = REQUEST_BYTES_MAX - request_bytes(operations)
        first, last = CreateNode("/more", b"x" * node_bytes), CreateNode("/last", b"x" * rest_bytes)
        with pytest.raises(RequestTooLarge) as failure:
            await tree.multi([first, *operations[1:], last])
        assert failure.value.path == "/more"
        assert await tree.exists("/more") is None


async def test_ephemeral_nodes_are_deleted_with_their_session_and_no_others(home: TreeBackend) -> None:
    async with home.running() as running:
        first, second = await running.connect(), await running.connect()
        await first.create("/first", ephemeral=True)
        await second.create("/second", ephemeral=True)
        await first.create("/kept")
        assert first.session_id != second.session_id
        assert (await second.get("/first")).stat.ephemeral_owner == first.session_id
        await first.close()
        gone: list[None] = []
        if await second.exists("/first", watch=lambda: gone.append(None)) is not None:
            await until(lambda: bool(gone))
        assert await second.exists("/first") is None
        assert await second.exists("/second") is not None
        assert await second.exists("/kept") is not None


async def test_ephemeral_nodes_have_no_children(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a", ephemeral=True)
        with pytest.raises(NoChildrenForEphemerals):
            await tree.create("/a/b")


async def test_ephemeral_nodes_are_gone_after_a_restart_but_their_changes_stay(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/changes")
        await tree.multi([CreateNode("/alive", b"", ephemeral=True), SetNode("/changes", b"alive")])
        session_id = tree.session_id
        czxid = (await tree.get("/alive")).stat.czxid
    async with connected(home) as tree:
        assert await tree.exists("/alive") is None
        assert (await tree.get("/changes")).data == b"alive"
        assert tree.session_id != session_id
        await tree.create("/alive", ephemeral=True)
        assert (await tree.get("/alive")).stat.czxid > czxid


async def test_ended_session_refuses_everything_and_notifies_its_listeners(home: TreeBackend) -> None:
    async with home.running() as running:
        tree = await running.connect()
        told: list[SessionState] = []
        tree.add_session_listener(told.append)
        states = [tree.state]
        await tree.close()
        await until(lambda: bool(told))
        states.append(tree.state)
        assert told == [SessionState.LOST]
        assert states == [SessionState.CONNECTED, SessionState.LOST]
        for operation in (tree.create("/a"), tree.get("/"), tree.multi([]), tree.exists("/"), tree.get_many(["/"])):
            with pytest.raises(SessionLost):
                await operation
        await tree.close()  # once more is no error
        assert told == [SessionState.LOST]


async def test_writes_that_were_started_before_the_close_are_applied(home: TreeBackend) -> None:
    async with home.running() as running:
        tree, other = await running.connect(), await running.connect()
        writing = [asyncio.ensure_future(tree.create(f"/n{number}")) for number in range(10)]
        await asyncio.sleep(0)
        await tree.close()
        await asyncio.gather(*writing)
        assert (await other.get_many([f"/n{number}" for number in range(10)])).count(None) == 0


async def test_session_ids_are_never_used_again(home: TreeBackend) -> None:
    seen: set[int] = set()
    for _ in range(3):
        async with home.running() as running:
            for _ in range(2):
                tree = await running.connect()
                assert tree.session_id != NO_OWNER
                assert tree.session_id not in seen
                seen.add(tree.session_id)


async def test_lease_holds_while_the_session_lives_and_ends_with_it(home: TreeBackend) -> None:
    async with home.running() as running:
        tree = await running.connect()
        lease = tree.lease
        assert lease.until_ms > SystemClock().boottime_ms()
        await tree.close()
        assert lease is tree.lease
        assert lease.until_ms == 0


async def test_read_after_sync_sees_earlier_writes_of_others(home: TreeBackend) -> None:
    async with home.running() as running:
        writer, reader = await running.connect(), await running.connect()
        await writer.create("/a", b"0")
        for number in range(1, 21):
            await writer.set("/a", b"%d" % number, ANY_VERSION)
            await reader.sync()
            assert (await reader.get("/a")).data == b"%d" % number
        await reader.close()
        with pytest.raises(SessionLost):
            await reader.sync()


class Calls:
    """A watch that counts, and can be given to several reads."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


async def test_data_watch_is_called_once_when_the_node_is_set(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a")
        calls = Calls()
        await tree.get("/a", watch=calls)
        await tree.set("/a", b"1", ANY_VERSION)
        await until(lambda: calls.count == 1)
        await tree.set("/a", b"2", ANY_VERSION)
        await settle(tree)
        assert calls.count == 1


async def test_data_watch_is_called_when_the_node_is_deleted(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a")
        by_get, by_exists = Calls(), Calls()
        await tree.get("/a", watch=by_get)
        await tree.exists("/a", watch=by_exists)
        await tree.delete("/a")
        await until(lambda: by_get.count == by_exists.count == 1)


async def test_exists_watch_is_called_when_the_node_is_created(home: TreeBackend) -> None:
    async with connected(home) as tree:
        calls = Calls()
        await tree.exists("/a", watch=calls)
        await tree.create("/a")
        await until(lambda: calls.count == 1)


async def test_failed_reads_leave_no_watch(home: TreeBackend) -> None:
    async with connected(home) as tree:
        calls = Calls()
        with pytest.raises(NoNode):
            await tree.get("/a", watch=calls)
        with pytest.raises(NoNode):
            await tree.children("/a", watch=calls)
        await tree.create("/a")
        await settle(tree)
        assert calls.count == 0


async def test_children_watch_is_called_when_a_child_or_the_node_is_created_or_deleted(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a")
        coming, going, gone = Calls(), Calls(), Calls()
        await tree.children("/a", watch=coming)
        await tree.create("/a/b")
        await until(lambda: coming.count == 1)
        await tree.children("/a", watch=going)
        await tree.delete("/a/b")
        await until(lambda: going.count == 1)
        await tree.children("/a", watch=gone)
        await tree.delete("/a")
        await until(lambda: gone.count == 1)


async def test_watches_are_not_called_for_other_changes(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a")
        await tree.create("/a/b")
        data, children = Calls(), Calls()
        await tree.get("/a", watch=data)
        await tree.children("/a", watch=children)
        await tree.set("/a/b", b"1", ANY_VERSION)  # a child's data is neither
        await tree.create("/a/b/c")  # nor are grandchildren
        await settle(tree)
        assert (data.count, children.count) == (0, 0)
        await tree.set("/a", b"1", ANY_VERSION)
        await until(lambda: data.count == 1)
        await settle(tree)
        assert children.count == 0


async def test_watch_of_one_session_sees_the_change_of_another_when_it_is_called(home: TreeBackend) -> None:
    async with home.running() as running:
        watcher, writer = await running.connect(), await running.connect()
        await writer.create("/a", b"old")
        seen: list[bytes] = []
        called = asyncio.Event()
        await watcher.exists("/a")
        await watcher.get("/a", watch=called.set)
        await writer.set("/a", b"new", ANY_VERSION)
        async with asyncio.timeout(10):
            await called.wait()
        seen.append((await watcher.get("/a")).data)
        assert seen == [b"new"]


async def test_one_watch_is_called_once_for_a_multi_that_changes_its_node(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/changes")
        calls = Calls()
        await tree.get("/changes", watch=calls)
        await tree.multi([SetNode("/changes", b""), *(CreateNode(f"/n{number}") for number in range(100))])
        await until(lambda: calls.count == 1)


async def test_failed_multi_calls_no_watch(home: TreeBackend) -> None:
    async with connected(home) as tree:
        await tree.create("/a")
        calls = Calls()
        await tree.get("/a", watch=calls)
        await tree.exists("/b", watch=calls)
        with pytest.raises(BadVersion):
            await tree.multi([SetNode("/a", b"1"), CreateNode("/b"), CheckNode("/a", 9)])
        await settle(tree)
        assert calls.count == 0


async def test_watches_are_called_when_their_session_ends(home: TreeBackend) -> None:
    async with home.running() as running:
        tree = await running.connect()
        await tree.create("/a")
        data, children, missing = Calls(), Calls(), Calls()
        await tree.get("/a", watch=data)
        await tree.children("/a", watch=children)
        await tree.exists("/b", watch=missing)
        await tree.close()
        await until(lambda: data.count == children.count == missing.count == 1)


async def test_tree_is_the_same_after_a_restart(home: TreeBackend) -> None:
    paths = ["/a", "/a/b", "/a/b/c", "/z"]
    async with connected(home) as tree:
        for path in paths:
            await tree.create(path, path.encode())
        await tree.set("/a/b", b"changed", 0)
        await tree.create("/gone")
        await tree.delete("/gone")
        before = await tree.get_many(paths)
    async with connected(home) as tree:
        assert await tree.get_many(paths) == before
        assert await tree.exists("/gone") is None
        assert await tree.children("/a") == ["b"]


async def test_change_ids_keep_rising_over_restarts(home: TreeBackend) -> None:
    highest = 0
    for number in range(3):
        async with connected(home) as tree:
            if home.session_ids_are_change_ids:
                assert tree.session_id > highest
            await tree.create(f"/n{number}", ephemeral=number % 2 == 1)
            czxid = (await tree.get(f"/n{number}")).stat.czxid
            assert czxid > highest
            highest = czxid


async def until_gone(tree: Tree, path: str) -> None:
    """A home that survives its sessions deletes their nodes when they expire."""
    async with asyncio.timeout(60):
        while True:
            changed = asyncio.Event()
            if await tree.exists(path, watch=changed.set) is None:
                return
            await changed.wait()


class Acknowledged:
    """The output of a `crash_writer` before it died."""

    def __init__(self) -> None:
        self.version: dict[str, int] = {}
        self.ephemeral: set[str] = set()
        self.zxid_max = 0

    def read(self, lines: list[str]) -> None:
        for line in lines:
            if line.startswith("session "):
                self.zxid_max = max(self.zxid_max, int(line.split()[1]))
                continue
            path, version, mzxid, kind = line.split()
            self.zxid_max = max(self.zxid_max, int(mzxid))
            if kind == "ephemeral":
                self.ephemeral.add(path)
            else:
                self.version[path] = max(self.version.get(path, 0), int(version))


async def lines_until_killed(command: list[str], lines_count: int) -> list[str]:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    lines = [(await process.stdout.readline()).decode() for _ in range(lines_count)]
    process.kill()
    rest = (await process.stdout.read()).decode()
    await process.wait()
    said = lines + rest.splitlines(keepends=True)
    return [line for line in said if line.endswith("\n")]  # the kill may have truncated the last line


@pytest.mark.parametrize("lines_count", [1, 40, 300, 1500])
async def test_crash_while_writing_loses_nothing_acknowledged_and_repeats_no_change_id(
    home: TreeBackend, lines_count: int
) -> None:
    acknowledged = Acknowledged()
    acknowledged.read(await lines_until_killed(home.crash_writer_command(), lines_count))
    async with connected(home) as tree:
        await tree.create("/after")
        assert (await tree.get("/after")).stat.czxid > acknowledged.zxid_max
        if home.session_ids_are_change_ids:
            assert tree.session_id > acknowledged.zxid_max
        paths = list(acknowledged.version)
        for path, node in zip(paths, await tree.get_many(paths), strict=True):
            assert node is not None, path
            assert node.stat.version >= acknowledged.version[path], path
        for path in acknowledged.ephemeral:
            await until_gone(tree, path)
        for name in await tree.children("/"):
            if name.startswith("writer-"):
                # Counter and child were written by one multi: the last surviving one must agree.  An ephemeral
                # child that was not acknowledged may still exist.
                counter = int((await tree.get(f"/{name}")).data or b"0")
                children = [int(child) for child in await tree.children(f"/{name}") if int(child) % 4]
                assert sorted(children) == [number for number in range(1, counter + 1) if number % 4]
