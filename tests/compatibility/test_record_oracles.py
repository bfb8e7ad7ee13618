"""Our record batches against two foreign implementations, `aiokafka` and `kafka-python`: each reads what
the other wrote.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from sparklog.kernels import scan
from sparklog.record.batch import build_batch, codec_of, decode_records, read_header
from sparklog.record.columns import read_columns
from sparklog.record.compression import Codec

pytestmark = pytest.mark.compat

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


def kafka_python() -> tuple[Any, Any]:
    module = pytest.importorskip("kafka.record.default_records")
    return module.DefaultRecordBatchBuilder, module.DefaultRecordBatch


def aiokafka_compiled() -> tuple[Any, Any]:
    module = pytest.importorskip("aiokafka.record._crecords.default_records")
    return module.DefaultRecordBatchBuilder, module.DefaultRecordBatch


def aiokafka_plain() -> tuple[Any, Any]:
    module = pytest.importorskip("aiokafka.record.default_records")
    return module._DefaultRecordBatchBuilderPy, module._DefaultRecordBatchPy


each_oracle = pytest.mark.parametrize(
    "oracle", [kafka_python, aiokafka_compiled, aiokafka_plain], ids=lambda oracle: oracle.__name__
)
each_codec = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)


def rows(seed: int) -> list[Row]:
    random = Random(seed)
    made: list[Row] = []
    for index in range(random.randrange(1, 400)):
        key = None if random.random() < 0.3 else random.randbytes(random.randrange(12))
        value = None if random.random() < 0.1 else b"%d " % index * random.randrange(60)
        headers: list[tuple[str, bytes | None]] = [
            (f"h{n}é", None if random.random() < 0.2 else random.randbytes(n))
            for n in range(random.randrange(4))
        ]
        made.append((key, value, headers, 1_700_000_000_000 + random.randrange(-5000, 5000)))
    return made


def built_there(builder: Any, rows: list[Row], codec: Codec) -> bytes:
    batch = builder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=77,
        producer_epoch=3,
        base_sequence=9,
        batch_size=1 << 30,
    )
    for index, (key, value, headers, timestamp) in enumerate(rows):
        batch.append(index, timestamp=timestamp, key=key, value=value, headers=headers)
    return bytes(batch.build())


def read_there(reader: Any, batch: bytes) -> list[tuple[int, Row]]:
    records = reader(batch)
    assert records.validate_crc()
    return [
        (record.offset, (record.key, record.value, list(record.headers), record.timestamp))
        for record in records
    ]


@each_oracle
@each_codec
@pytest.mark.parametrize("seed", range(4))
def test_what_they_wrote_is_read_here(oracle: Callable[[], tuple[Any, Any]], codec: Codec, seed: int) -> None:
    builder, _ = oracle()
    written = rows(seed)
    batch = built_there(builder, written, codec)
    header = read_header(batch)
    assert (header.size, codec_of(header), header.record_count) == (len(batch), codec, len(written))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (
        77,
        3,
        9,
        True,
    )
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in decode_records(batch)] == written
    assert sum(piece.count for piece in read_columns([batch])) == len(written)
    scan.check_batch(batch, False)


@each_oracle
@each_codec
@pytest.mark.parametrize("seed", range(4))
def test_what_is_written_here_is_read_there(
    oracle: Callable[[], tuple[Any, Any]], codec: Codec, seed: int
) -> None:
    _, reader = oracle()
    written = rows(seed)
    batch = bytes(
        build_batch(written, codec=codec, base_offset=500, producer_id=1, producer_epoch=0, base_sequence=0)
    )
    assert read_there(reader, batch) == list(enumerate(written, start=500))


@each_oracle
def test_uncompressed_batches_are_the_same_bytes(oracle: Callable[[], tuple[Any, Any]]) -> None:
    builder, _ = oracle()
    written = rows(11)
    ours = build_batch(written, producer_id=77, producer_epoch=3, base_sequence=9, is_transactional=True)
    theirs = built_there(builder, written, Codec.NONE)
    scan.stamp(ours, 0, read_header(theirs).leader_epoch)  # no client knows it, and each writes its own guess
    assert bytes(ours) == theirs
