"""A Python function as a column whose errors are values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pyspark.sql import Column
from pyspark.sql.functions import udf
from pyspark.sql.types import DataType, StringType, StructField, StructType, _make_type_verifier, _parse_datatype_string

from ottla.dead_letters.letter import ERROR_CHARS_MAX, error_class_of

ColumnOrName: TypeAlias = Column | str

ERROR_TYPE: Final = StructType([StructField("class", StringType()), StructField("message", StringType())])


def attempt(function: Callable[..., Any], returns: DataType | str) -> Callable[..., Column]:
    """A column function that never fails: it gives `struct<result: returns, error: struct<class, message>>`.

        parsed = attempt(json.loads, "member bigint, page string")
        rows.withColumn("parsed", parsed("value"))          # parsed.result.page, or parsed.error.message

    `function` gets the columns' values (binary ones as `bytes`) and returns a value of the type `returns`: a dict, a
    tuple or a Row for a struct.  What it raises (an `Exception`) is the error, and so is a result of another type.
    Where there is an error the result is null, and the other way round.
    It runs in Python, row by row; `from_json` and its like, where they do, are faster.
    """
    kind = _parse_datatype_string(returns) if isinstance(returns, str) else returns
    schema = StructType([StructField("result", kind), StructField("error", ERROR_TYPE)])
    verify = _make_type_verifier(kind, nullable=True)

    def tried(*values: Any) -> tuple[Any, tuple[str, str] | None]:
        try:
            result = function(*(bytes(each) if isinstance(each, bytearray) else each for each in values))
            verify(result)
        except Exception as error:  # noqa: BLE001 (whatever a user's function raises)
            return None, (error_class_of(error), str(error)[:ERROR_CHARS_MAX])
        return result, None

    column: Callable[..., Column] = udf(tried, schema)
    return column
