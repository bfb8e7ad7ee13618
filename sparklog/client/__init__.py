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
