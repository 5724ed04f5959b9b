"""The options as Spark first hands them over, at `load()` and `start()`: it has not said yet what they are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.spark.errors import SparkOptionError
from ottla.spark.options.read_options import parse_read_options
from ottla.spark.options.write_options import parse_without_columns

_OF_READS: Final = frozenset({"subscribe", "subscribepattern", "assign"})
_OF_WRITES: Final = frozenset({"topic", "checkpointlocation", "includetimestamp"})


def check_options(options: Mapping[str, str]) -> None:
    """Raises `SparkOptionError` for options that no read, no stream and no write could take.

    What only one of them refuses (an end for a stream) is refused when it begins.
    """
    names = {name.lower() for name in options}
    if names & _OF_READS:
        try:
            parse_read_options(options, is_stream=False)
        except SparkOptionError as batch_error:
            try:
                parse_read_options(options, is_stream=True)
            except SparkOptionError:
                raise batch_error from None
        return
    try:
        parse_without_columns(options)
    except SparkOptionError:
        if names & _OF_WRITES:
            raise
        # Nothing says that it is a write: what a read lacks is the better advice.
        parse_read_options(options, is_stream=True)
