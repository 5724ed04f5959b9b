from __future__ import annotations

import pytest

from ottla.groups.refusals import code_for_committer, code_for_member
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError, WireError


@pytest.mark.parametrize(
    ("code", "to_member", "to_committer"),
    [
        (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
    ],
)
def test_refused_append_gets_the_code_of_apache_kafka(
    code: ErrorCode, to_member: ErrorCode, to_committer: ErrorCode
) -> None:
    assert code_for_member(code) is to_member
    assert code_for_committer(code) is to_committer


def test_code_of_an_error_is_its_own_or_that_of_its_class() -> None:
    assert RequestError(ErrorCode.MESSAGE_TOO_LARGE, "x").error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert WireError("x").error_code is ErrorCode.INVALID_REQUEST
