"""The client: producers, consumers and administration over Kafka's protocol, blocking and for asyncio.

Two kinds of files. The machines implement the protocol and never wait: bytes, replies and the time go in,
requests and values come out; brokers use them for requests to each other. The shells own sockets, the clock
and their one thread; those that begin with `async` have an event loop in its place. A file is a shell if it
imports `transport.network`, directly or through another.

    transport      connections: Kafka's protocol over streams; the one place that waits
    sasl           authentication of a connection
    producer       batches, their requests, and transactions
    consumer       partitions read in offset order
    membership     a member of a consumer group, and its committed offsets
    admin          administration: one file for each family of calls
    exactly_once   the decisions of an exactly-once sink, and who may end its transactions

Beside them: `settings` (each setting of a client), `failures` (the errors), `cluster` (the metadata),
`offsets` (ListOffsets and DeleteRecords), `tables` (Arrow), `typed`, `clock`, `logs`.

Nothing here knows Spark or the server, and only `tables` knows Arrow. Read `transport/connection.py` first,
then `transport/network.py`.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence


def lazy_names(package: str, names_by_module: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose public names load the module that has them on first use, as does
    the name of such a module itself.
    """

    def attribute(name: str) -> object:
        if (module := f"{package}.{name}") in names_by_module:
            return importlib.import_module(module)
        home = next((home for home, names in names_by_module.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home), name)

    return attribute
