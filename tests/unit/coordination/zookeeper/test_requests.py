"""Our requests on the wire are those of kazoo, which real servers answer."""

from __future__ import annotations

import struct

from kazoo.protocol.serialization import CheckVersion, Create, Delete, GetData, MultiHeader, SetData, Transaction
from kazoo.security import OPEN_ACL_UNSAFE

from ottla.coordination.tree import (
    OPERATION_BYTES,
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    Operation,
    SetNode,
    Stat,
    request_bytes,
)
from ottla.coordination.zookeeper.access import CHROOT_BYTES_MAX, USER_BYTES_MAX, DigestCredentials
from ottla.coordination.zookeeper.node_access import open_access, shared_access
from ottla.coordination.zookeeper.requests import (
    Failure,
    MultiRead,
    MultiWrite,
    full_path,
)

OPERATIONS: list[Operation] = [
    CreateNode("/a", b"data"),
    CreateNode("/e", b"", ephemeral=True),
    SetNode("/b", b"x\x00y", 7),
    DeleteNode("/c", -1),
    CheckNode("/", 3),
]
STAT = struct.pack(">qqqqiiiqiiq", 11, 12, 1_600_000_000_000, 0, 3, 5, 0, 99, 4, 2, 13)
END = MultiHeader(-1, True, -1).serialize()


def test_multi_is_written_as_kazoo_writes_it() -> None:
    theirs = Transaction(
        [
            Create("/root/a", b"data", OPEN_ACL_UNSAFE, 0),
            Create("/root/e", b"", OPEN_ACL_UNSAFE, 1),
            SetData("/root/b", b"x\x00y", 7),
            Delete("/root/c", -1),
            CheckVersion("/root", 3),
        ]
    )
    assert MultiWrite(OPERATIONS, "/root", open_access).serialize() == bytes(theirs.serialize())


def test_multi_of_reads_is_written_like_a_multi() -> None:
    theirs = Transaction([GetData("/root/a", None), GetData("/root", None)])
    assert MultiRead(["/a", "/"], "/root").serialize() == bytes(theirs.serialize())


def test_answer_of_a_multi_has_the_stat_of_each_set() -> None:
    answer = b"".join(
        [
            MultiHeader(1, False, 0).serialize() + struct.pack(">i", 2) + b"/a",
            MultiHeader(5, False, 0).serialize() + STAT,
            MultiHeader(2, False, 0).serialize(),
            MultiHeader(13, False, 0).serialize(),
            END,
        ]
    )
    stat = Stat(version=3, czxid=11, mzxid=12, ephemeral_owner=99, ctime_ms=1_600_000_000_000, children_count=2)
    assert MultiWrite(OPERATIONS, "", open_access).deserialize(b"head" + answer, 4) == [None, stat, None, None]


def test_answer_of_a_failed_multi_is_its_first_failure() -> None:
    codes = [0, 0, -103, -2, -2]
    answer = b"".join(MultiHeader(-1, False, code).serialize() + struct.pack(">i", code) for code in codes) + END
    assert MultiWrite(OPERATIONS, "", open_access).deserialize(answer, 0) == [Failure(2, -103)]


def test_answer_of_a_multi_of_reads_has_nodes_and_gaps() -> None:
    answer = b"".join(
        [
            MultiHeader(4, False, 0).serialize() + struct.pack(">i", 4) + b"data" + STAT,
            MultiHeader(-1, False, -101).serialize() + struct.pack(">i", -101),
            MultiHeader(4, False, 0).serialize() + struct.pack(">i", -1) + STAT,
            MultiHeader(-1, False, -102).serialize() + struct.pack(">i", -102),
            END,
        ]
    )
    stat = Stat(version=3, czxid=11, mzxid=12, ephemeral_owner=99, ctime_ms=1_600_000_000_000, children_count=2)
    read = MultiRead(["/a", "/no", "/empty", "/closed"], "").deserialize(answer, 0)
    assert read == [Node(b"data", stat), None, Node(b"", stat), -102]


def test_paths_are_below_the_chroot() -> None:
    assert [full_path(chroot, path) for chroot in ("", "/root") for path in ("/", "/a/b")] == [
        "/",
        "/a/b",
        "/root",
        "/root/a/b",
    ]


def test_estimate_of_a_request_covers_the_longest_chroot_and_users() -> None:
    """The server keeps a digest user as `name:` and 28 characters of a hash in the list of each node."""
    access = shared_access(*(DigestCredentials(letter * USER_BYTES_MAX, "secret") for letter in "bc"))
    chroot = "/" + "c" * (CHROOT_BYTES_MAX - 1)
    operations = [CreateNode("/consumers/jobs", b"data"), *OPERATIONS]
    written = len(MultiWrite(operations, chroot, access).serialize())
    assert len(END) < written <= request_bytes(operations)
    assert written > request_bytes(operations) - len(operations) * OPERATION_BYTES
