from __future__ import annotations

from ottla.broker.async_requests import (
    ANSWER_BYTES_MAX,
    ANSWERS_COUNT_MAX,
    PARTITIONS_COUNT_MIN,
    MetadataAnswers,
)
from ottla.coordination.topics_view import TopicsView
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

VIEW = TopicsView.of(1, {})


def answer(partitions_count: int = PARTITIONS_COUNT_MIN, error_code: int = 0) -> MetadataResponse:
    partitions = [MetadataResponsePartition(partition_index=index) for index in range(partitions_count)]
    return MetadataResponse(topics=[MetadataResponseTopic(error_code, "t", partitions=partitions)])


def test_answer_is_found_while_the_topics_stay_as_they_are() -> None:
    answers = MetadataAnswers()
    assert answers.find(VIEW, "all") is None
    answers.keep(VIEW, "all", answer(), b"body")
    assert answers.find(VIEW, "all") == b"body"
    assert answers.find(VIEW, "other") is None
    assert answers.find(TopicsView.of(2, {}), "all") is None
    assert answers.find(VIEW, "all") is None


def test_small_answers_and_answers_with_errors_are_not_kept() -> None:
    answers = MetadataAnswers()
    answers.keep(VIEW, "small", answer(PARTITIONS_COUNT_MIN - 1), b"body")
    answers.keep(VIEW, "topic error", answer(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), b"body")
    failed = answer()
    failed.topics[0].partitions[3].error_code = ErrorCode.LEADER_NOT_AVAILABLE
    answers.keep(VIEW, "partition error", failed, b"body")
    assert [answers.find(VIEW, key) for key in ("small", "topic error", "partition error")] == [None] * 3


def test_the_longest_unused_answer_goes_when_there_are_too_many() -> None:
    answers = MetadataAnswers()
    for number in range(ANSWERS_COUNT_MAX):
        answers.keep(VIEW, number, answer(), b"body")
    answers.find(VIEW, 0)
    answers.keep(VIEW, "one more", answer(), b"body")
    assert answers.find(VIEW, 0) == b"body"
    assert answers.find(VIEW, 1) is None


def test_bytes_of_all_answers_are_bounded() -> None:
    answers = MetadataAnswers()
    half = bytes(ANSWER_BYTES_MAX // 2)
    for key in ("a", "b", "b", "c"):
        answers.keep(VIEW, key, answer(), half)
    assert [answers.find(VIEW, key) is not None for key in ("a", "b", "c")] == [False, True, True]
    answers.keep(VIEW, "huge", answer(), bytes(ANSWER_BYTES_MAX + 1))
    assert answers.find(VIEW, "huge") is None
