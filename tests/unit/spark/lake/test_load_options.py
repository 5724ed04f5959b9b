from __future__ import annotations

import pytest

from ottla.spark.errors import SparkOptionError
from ottla.spark.lake.load import refuse_others_options


@pytest.mark.parametrize(
    "name", ["startingTimestamp", "ENDINGOFFSETS", "minPartitions", "pushFilters", "includeHeaders", "subscribePattern"]
)
def test_what_a_load_decides_is_no_option_of_it(name: str) -> None:
    with pytest.raises(SparkOptionError, match=f"(?i)the option '{name}' does not apply to a load; a load has: "):
        refuse_others_options({name: "1"})


def test_options_of_connections_and_losses_are_taken() -> None:
    refuse_others_options({"failOnDataLoss": "false", "kafka.default.api.timeout.ms": "1000", "groupId": "lake"})
