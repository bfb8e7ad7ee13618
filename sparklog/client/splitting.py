"""A batch that its topic refuses as too large, sent again in parts (KIP-126).

The parts have the records and the sequences of the batch, so that the broker still detects duplicates, and
take its place in the line of the partition. A part may be split again.

    batch ──refused──► parts ──► each acknowledged or given up ──► `Done` of the batch, with that of each part
"""

from sparklog.client.outbound_batch import NOT_SENT, SEQUENCE_MASK, OutboundBatch, Split
from sparklog.record.batch import (
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchBuilder,
    Headers,
    Record,
    codec_of,
    decode_records,
    read_header,
)


def parts_of(batch: OutboundBatch, bytes_max: int, compression_level: int | None) -> list[OutboundBatch]:
    """A batch of several records in parts of at most half its size, and of at most `bytes_max` bytes before
    compression, except for a part of one record.
    """
    header = read_header(batch.records)
    records = decode_records(batch.records)
    split = Split(batch) if batch.split is None else batch.split
    parts: list[OutboundBatch] = []
    first = 0
    for builder in _builders(records, bytes_max):
        sequence = batch.sequence if batch.sequence == NOT_SENT else (batch.sequence + first) & SEQUENCE_MASK
        content = builder.build(
            codec=codec_of(header),
            compression_level=compression_level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=sequence,
            is_transactional=bool(header.attributes & TRANSACTIONAL_BIT),
        )
        part = OutboundBatch(batch.topic_partition, content, builder.record_count, batch.deadline)
        part.sequence, part.split, part.first = sequence, split, batch.first + first
        parts.append(part)
        first += builder.record_count
    return parts


def _builders(records: list[Record], bytes_max: int) -> list[BatchBuilder]:
    whole = BatchBuilder()
    for record in records:
        whole.append(*_content(record))
    limit = min(bytes_max, HEADER_SIZE + (whole.size - HEADER_SIZE) // 2)
    builders: list[BatchBuilder] = []
    for record in records:
        if not builders or builders[-1].append(*_content(record)) < 0:
            builders.append(BatchBuilder())
            builders[-1].append(*_content(record))  # without a limit, since a part has at least one
            builders[-1].records.limit = limit
    return builders


def _content(record: Record) -> tuple[bytes | None, bytes | None, Headers, int]:
    return record.key, record.value, record.headers, record.timestamp
