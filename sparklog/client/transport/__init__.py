"""Connections to brokers: Kafka's requests and replies over TCP and TLS.

`connection` is the machine: requests become bytes, bytes become answers in the order of the requests.
`network` is the blocking shell around it, with one connection per broker, the metadata of the cluster and
the sockets; `event_loop` turns the same network in an event loop. `stream` and `tls_stream` carry bytes.

It knows no record, topic or group: only requests, brokers and deadlines. Read `connection.py` first.
"""
