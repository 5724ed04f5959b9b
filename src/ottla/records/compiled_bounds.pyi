from typing_extensions import Buffer

def first_fault(data: Buffer, position: int, records_count: int, base_timestamp_ms: int, /) -> int: ...
def batch_fault(batch: Buffer, /) -> int: ...
def walk_records(
    data: Buffer,
    records_count: int,
    base_timestamp_ms: int,
    requires_keys: bool,
    timestamp_ms_min: int,
    timestamp_ms_max: int,
    named_max: int,
    /,
) -> tuple[int, int, int, list[tuple[int, int, int]]] | None: ...
