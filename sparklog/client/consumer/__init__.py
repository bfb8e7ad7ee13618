"""Consumers: partitions read in offset order, as records or whole batches.

`core` has each method of a consumer as a generator that yields where it waits (`waits`); `consumer` performs
these steps by blocking, `async_consumer` in an event loop. `fetch` decides what to request next, `chunk`
holds what a reply brought, `consumer_group` is the part of a membership that runs in the user's thread.
Spark reads without a consumer: `ranges` up to a known end, `standing_fetch` to learn of new records.

It knows no producer. How a group is joined is the business of `membership`. Read `core.py` first, then
`fetch.py`.
"""

from typing import TYPE_CHECKING

from sparklog.client import lazy_names

if TYPE_CHECKING:
    from sparklog.client.consumer.consumer import Consumer
    from sparklog.client.consumer.records import (
        ConsumerInterceptor,
        ConsumerRecord,
        Deserializer,
        FetchedBatches,
    )

__all__ = ["Consumer", "ConsumerInterceptor", "ConsumerRecord", "Deserializer", "FetchedBatches"]

_NAMES = {
    "sparklog.client.consumer.consumer": ("Consumer",),
    "sparklog.client.consumer.records": (
        "ConsumerInterceptor",
        "ConsumerRecord",
        "Deserializer",
        "FetchedBatches",
    ),
}

__getattr__ = lazy_names(__name__, _NAMES)
