"""How fast record batches become Arrow columns and columns become batches, per core, compiled and in plain
Python.

Records of 100 bytes: a key of 8, a value of 81 and the rest framing; batches of 16 KiB, as producers send
them. Reading verifies CRCs and goes through `read_columns` in pieces of its default size.
"""

import time
from array import array
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from unittest.mock import patch

from benchmarks.harness import Figures, options
from sparklog.record import columns as record_columns
from sparklog.record.batch import HEADER_SIZE, build_batch
from sparklog.record.columns import ALL, KEY, VALUE, BinaryColumn, read_columns, write_batches

RECORDS = {"compiled": 2_000_000, "reference": 60_000}
RECORDS_PER_BATCH = 160
KEY_BYTES, VALUE_BYTES = 8, 81
PARTITIONS = 8
TIMESTAMP_MS = 1_700_000_000_000


def main() -> None:
    chosen = options(__doc__, repeats=5)
    figures = Figures("columns")
    for name in ("compiled", "reference"):
        try:
            kernel = import_module(f"sparklog.kernels.columns_{name}")
        except ImportError:
            figures.note(f"the {name} kernel is not built")
            continue
        with patch.object(record_columns, "columns", kernel):
            measure(figures, name, kernel, chosen.repeats)
    figures.note(
        "records of 100 B, per second of processor time of one core; writing is into 8 partitions by key, "
        "without compression"
    )
    figures.report(chosen)


def measure(figures: Figures, name: str, kernel: ModuleType, repeats: int) -> None:
    count = RECORDS[name]
    buffer = batches(count)
    keys = b"".join(b"k%07d" % (row * 7919 % 1_000_000) for row in range(count))
    key = BinaryColumn(None, array("i", range(0, KEY_BYTES * (count + 1), KEY_BYTES)), keys)
    value = BinaryColumn(
        None, array("i", range(0, VALUE_BYTES * (count + 1), VALUE_BYTES)), bytes(VALUE_BYTES * count)
    )
    read_bound, write_bound = (">= 10", ">= 8") if name == "compiled" else (">= 0.4", "")
    for _ in range(repeats):
        figures.add(
            "batches to all columns",
            "M records/s",
            name,
            rate(count, lambda: read(buffer, ALL)),
            bound=read_bound,
        )
        figures.add(
            "batches to key and value", "M records/s", name, rate(count, lambda: read(buffer, KEY | VALUE))
        )
        figures.add(
            "columns to batches",
            "M records/s",
            name,
            rate(
                count,
                lambda: write_batches(
                    count, key=key, value=value, timestamp_ms=TIMESTAMP_MS, partition_count=PARTITIONS
                ),
            ),
            bound=write_bound,
        )
        figures.add(
            "murmur2 of 8 bytes, one call", "M keys/s", name, rate(20_000, lambda: murmur2_alone(kernel))
        )


def batches(count: int) -> bytes:
    """So many records in batches that follow each other; all but the offsets repeat."""
    fields = [
        (b"k%07d" % row, bytes(VALUE_BYTES), (), TIMESTAMP_MS + row) for row in range(RECORDS_PER_BATCH)
    ]
    first = build_batch(fields)
    assert 98 <= (len(first) - HEADER_SIZE) / RECORDS_PER_BATCH <= 102
    repeated = bytearray()
    for base_offset in range(0, count, RECORDS_PER_BATCH):
        first[:8] = base_offset.to_bytes(8, "big")  # not covered by the CRC
        repeated += first
    return bytes(repeated)


def read(buffer: bytes, wanted: int) -> None:
    for _ in read_columns([buffer], wanted=wanted):
        pass


def murmur2_alone(kernel: ModuleType) -> None:
    murmur2, key = kernel.murmur2, b"k0000001"
    for _ in range(20_000):
        murmur2(key)


def rate(count: int, work: Callable[[], object]) -> float:
    """Millions per second of processor time."""
    started = time.process_time()
    work()
    return count / (time.process_time() - started) / 1e6


if __name__ == "__main__":
    main()
