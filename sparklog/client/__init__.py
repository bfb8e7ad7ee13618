"""The client: producers, consumers and administration over Kafka's protocol, blocking and typed.

Two kinds of files. The machines (`connection`, `cluster`, `accumulator`, `fetch`, and those that begin with
`membership`) implement the protocol and never wait: bytes, replies and the time go in, requests and values
come out; brokers use them for requests to each other. The shells (`transport`, `producer`, `consumer` with
`consumer_core`, `consumer_group` and `group`, `admin`, and `writer` and `ranges` for whole batches) own
sockets, the clock and their one thread; those that begin with `async` have an event loop in its place
(`looped`). Start with `connection.py`, then `transport.py`.

Nothing here knows Spark or the server, and only `tables` knows Arrow. `settings.py` is the one definition of
every setting; keyword arguments are Kafka's keys with `_` for `.`.
"""
