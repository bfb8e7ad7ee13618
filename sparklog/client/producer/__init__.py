"""Producers: records become batches, batches become requests, in transactions if there is a transactional id.

A record goes through `intake` (its partition) and `accumulator` (its batch) to `outbound` (sequences,
retries and order). `turns` selects the thread that does this, `sender` has the threads, `sending` and
`exchange` are one turn. `transaction` is the machine of transactions. `writer` sends whole batches from one
thread, without a `Producer`.

The public names are those of `producer` and `async_producer`. It knows no consumer; of groups it knows the
identity of a member and its offsets, which a transaction commits. Read `producer.py` first, then
`outbound.py`.
"""

from typing import TYPE_CHECKING

from sparklog.client import lazy_names

if TYPE_CHECKING:
    from sparklog.client.producer.producer import Partitioner, Producer, Serializer
    from sparklog.client.producer.promises import Deliveries, Delivery
    from sparklog.client.producer.records import ProducerInterceptor, ProducerRecord, RecordMetadata

__all__ = [
    "Deliveries",
    "Delivery",
    "Partitioner",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordMetadata",
    "Serializer",
]

_NAMES = {
    "sparklog.client.producer.producer": ("Partitioner", "Producer", "Serializer"),
    "sparklog.client.producer.promises": ("Deliveries", "Delivery"),
    "sparklog.client.producer.records": ("ProducerInterceptor", "ProducerRecord", "RecordMetadata"),
}

__getattr__ = lazy_names(__name__, _NAMES)
