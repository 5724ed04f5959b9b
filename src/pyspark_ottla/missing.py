"""What stands for the source where something that it needs is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource


def source_that_lacks(reason: str) -> type[DataSource]:
    """A source of the name `ottla` whose use reports what is missing.

    Without Spark's own sources there is nothing to stand for: raises ImportError.
    """
    from pyspark.sql.datasource import DataSource

    from ottla.runtime.installation import install_command

    message = f"the source 'ottla' cannot be used: {reason}; {install_command('spark')}"

    class Lacking(DataSource):
        def __init__(self, options: dict[str, str]) -> None:
            raise ImportError(message)

        @classmethod
        def name(cls) -> str:
            return "ottla"

    return Lacking
