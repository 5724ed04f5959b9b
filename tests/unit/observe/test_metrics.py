"""The text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.observe.metrics import (
    CHUNK_SAMPLES,
    PAUSE,
    CollectorRegistry,
    Family,
    Histogram,
    Pause,
    counter,
    gauge,
    histogram,
)


def _text(*families: Family, samples_max: int = 100) -> str:
    registry = CollectorRegistry(samples_max)
    registry.add(lambda: families)
    return "".join(registry.chunks())


def test_counter_without_labels_is_one_line_after_its_help_and_type() -> None:
    assert _text(counter("requests_total", "All requests.", 7)).startswith(
        "# HELP requests_total All requests.\n# TYPE requests_total counter\nrequests_total 7\n"
    )


def test_labels_are_in_the_order_of_their_names_and_escaped() -> None:
    text = _text(gauge("lag", "Lag.", {('a"b\\c\nd', "0"): 1.5}, ("group", "partition")))
    assert 'lag{group="a\\"b\\\\c\\nd",partition="0"} 1.5\n' in text


def test_help_of_several_lines_stays_one_line() -> None:
    assert "# HELP lag One\\ntwo \\\\ three\n" in _text(gauge("lag", "One\ntwo \\ three", 0))


def test_histogram_counts_each_bucket_with_all_below_it() -> None:
    times = Histogram((1, 10))
    for value in (0.5, 1, 1.5, 11):
        times.observe(value)
    text = _text(histogram("times", "Times.", {("Fetch",): times}, ("request",)))
    assert text.startswith(
        "# HELP times Times.\n"
        "# TYPE times histogram\n"
        'times_bucket{request="Fetch",le="1"} 2\n'
        'times_bucket{request="Fetch",le="10"} 3\n'
        'times_bucket{request="Fetch",le="+Inf"} 4\n'
        'times_sum{request="Fetch"} 14.0\n'
        'times_count{request="Fetch"} 4\n'
    )


def test_observation_of_a_sample_stands_for_as_many() -> None:
    times = Histogram((1,))
    times.observe(2.0, times=16)
    assert (times.counts, times.total) == ([0, 16], 32.0)


def test_samples_above_the_limit_are_left_out_and_counted() -> None:
    text = _text(gauge("size", "Sizes.", {(str(number),): number for number in range(5)}, ("n",)), samples_max=3)
    assert text.count("\nsize{") == 3
    assert 'ottla_samples_left_out{family="size"} 2\n' in text


def test_long_family_comes_in_chunks_that_join_to_one_text() -> None:
    registry = CollectorRegistry()
    registry.add(lambda: [gauge("size", "Sizes.", {(str(n),): n for n in range(2 * CHUNK_SAMPLES + 1)}, ("n",))])
    chunks = list(registry.chunks())
    assert max(chunk.count("\n") for chunk in chunks) <= CHUNK_SAMPLES
    assert "".join(chunks).count("\nsize{") == 2 * CHUNK_SAMPLES + 1


def test_collector_that_pauses_is_left_between_its_families() -> None:
    at: list[str] = []

    def collect() -> Iterator[Family | Pause]:
        at.append("first half")
        yield PAUSE
        at.append("second half")
        yield gauge("size", "Size.", 1)

    registry = CollectorRegistry()
    registry.add(collect)
    chunks = registry.chunks()
    next(chunks)
    assert at == ["first half"]
    assert "size 1\n" in "".join(chunks)


def test_two_collectors_with_one_name_are_a_mistake() -> None:
    registry = CollectorRegistry()
    registry.add(lambda: [gauge("size", "Size.", 1)])
    registry.add(lambda: [gauge("size", "Size.", 2)])
    with pytest.raises(AssertionError, match="two collectors have size"):
        list(registry.chunks())
