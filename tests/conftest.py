"""What holds for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.runtime.posix_disk import PosixFile


@pytest.fixture(autouse=True)
def files_opened_by_the_test_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many tests leave a log behind as a crash would, open.  Thousands of them would use up the descriptors that
    `select` can watch."""
    opened: list[PosixFile] = []
    make_file = PosixFile.__init__

    def make_and_remember(file: PosixFile, fd: int, path: str) -> None:
        make_file(file, fd, path)
        opened.append(file)

    monkeypatch.setattr(PosixFile, "__init__", make_and_remember)
    yield
    for file in opened:
        file.close()
