"""The result of each codec on a million records of 1 KB, JSON-like text, in batches of 64 KiB: size and
processor time both ways.

The data is the same on every run. `--records N` measures fewer; sizes and times are then of those.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from random import Random

from benchmarks.harness import Figures, options
from sparklog.record.batch import build_batch, codec_of, decode_records, read_header
from sparklog.record.compression import Codec, compress, decompress

RECORDS = 1_000_000
RECORDS_PER_BATCH = 64
DISTINCT_BATCHES = 200
VALUE_BYTES = 1000
HEADER_SIZE = 61
WORDS = "delayed boarding gate runway departed arrived cancelled diverted weather crew aircraft terminal baggage connection standby".split()  # noqa: E501


def main() -> None:
    records = _records_option()
    chosen = options(__doc__, repeats=1)
    distinct = [batch(seed) for seed in range(min(DISTINCT_BATCHES, -(-records // RECORDS_PER_BATCH)))]
    batch_count = -(-records // RECORDS_PER_BATCH)
    plain_bytes = sum(len(one) for one in distinct) * batch_count / len(distinct)
    figures = Figures("codecs")
    for _ in range(chosen.repeats):
        for codec in Codec:
            compressed, compress_s = timed(codec, distinct, batch_count)
            size = sum(len(one) for one in compressed) * batch_count / len(compressed)
            started = time.process_time()
            for index in range(batch_count):
                decompress(codec, compressed[index % len(compressed)])
            decompress_s = time.process_time() - started
            figures.add("size", "MB", codec.name.lower(), size / 1e6)
            figures.add("size, of the uncompressed", "%", codec.name.lower(), 100 * size / plain_bytes)
            figures.add("compress", "s", codec.name.lower(), compress_s)
            figures.add("decompress", "s", codec.name.lower(), decompress_s)
    check(distinct)
    figures.note(
        f"{records} records of {VALUE_BYTES} B in batches of {RECORDS_PER_BATCH}, {len(distinct)} different "
        f"batches in turn; one core"
    )
    figures.note(
        "gzip level 6 (zlib), zstd level 3, lz4 frames of independent 64 KiB blocks, snappy in xerial "
        "framing of 32 KiB blocks"
    )
    figures.report(chosen)


def _records_option() -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--records", type=int, default=RECORDS)
    known, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    return int(known.records)


def batch(seed: int) -> bytes:
    """The records part of one batch."""
    built = build_batch(
        [(b"%d" % index, value, (), 1_700_000_000_000 + index) for index, value in enumerate(values(seed))]
    )
    return bytes(built[HEADER_SIZE:])


def values(seed: int) -> Iterator[bytes]:
    random = Random(seed)
    for index in range(RECORDS_PER_BATCH):
        flight = {
            "id": f"{random.getrandbits(64):016x}",
            "flight": random.choice(["UA", "DL", "AA", "B6"]) + str(random.randrange(1, 9999)),
            "day": f"2013-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}",
            "time": f"{random.randrange(24):02}:{random.randrange(60):02}",
            "origin": random.choice(["JFK", "LGA", "EWR"]),
            "delay_minutes": random.randrange(-20, 300),
            "distance": random.randrange(80, 4983),
            "sequence": seed * RECORDS_PER_BATCH + index,
            "remarks": "",
        }
        text = json.dumps(flight)
        missing = VALUE_BYTES - len(text)
        remarks = ""
        while len(remarks) < missing:
            remarks += random.choice(WORDS) + " "
        flight["remarks"] = remarks[:missing]
        yield json.dumps(flight).encode()


def timed(codec: Codec, distinct: list[bytes], batch_count: int) -> tuple[list[bytes], float]:
    """Each distinct batch compressed, and the processor seconds that `batch_count` of them take."""
    compressed = [b""] * len(distinct)
    started = time.process_time()
    for index in range(batch_count):
        compressed[index % len(distinct)] = bytes(compress(codec, distinct[index % len(distinct)]))
    return compressed, time.process_time() - started


def check(distinct: list[bytes]) -> None:
    """Check that a reader gets the measured records back."""
    for codec in Codec:
        built = build_batch([(b"0", value, (), 0) for value in values(0)], codec=codec)
        assert codec_of(read_header(built)) is codec
        assert [record.value for record in decode_records(built)] == list(values(0))
        assert decompress(codec, compress(codec, distinct[0])) == distinct[0]


if __name__ == "__main__":
    main()
