"""Paths and errors of the tree's interface."""

from __future__ import annotations

import pytest

from ottla.coordination.tree import BadVersion, ConnectionLoss, SessionLost, check_path, parent_of
from ottla.model.error_code import ErrorCode


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/brokers/topics/or.de_rs-1", "/groups/\u00e9t\u00e9"])
def test_plain_paths_are_accepted(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize("path", ["", "a", "a/b", "//", "/a/", "/a//b", "/.", "/a/..", "/a\nb", "/a\x00", "/\ud800"])
def test_other_paths_are_refused_with_the_rule(path: str) -> None:
    with pytest.raises(ValueError, match="must be absolute"):
        check_path(path)


@pytest.mark.parametrize(("path", "parent"), [("/a/b/c", "/a/b"), ("/a", "/"), ("/", "/")])
def test_parent_is_the_path_above(path: str, parent: str) -> None:
    assert parent_of(path) == parent


def test_errors_name_the_path_and_the_place_in_a_multi() -> None:
    error = BadVersion("/a/b", operation_index=3)
    assert str(error) == "/a/b was changed by another session since it was read"
    assert error.operation_index == 3


def test_errors_that_a_client_can_wait_out_are_retriable() -> None:
    assert ConnectionLoss.error_code.is_retriable
    assert SessionLost.error_code is ErrorCode.BROKER_NOT_AVAILABLE
