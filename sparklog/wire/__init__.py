"""Kafka's wire protocol: the only package that decodes bytes into messages and encodes messages into bytes.

It knows the layout of every message but not its meaning, and does no I/O. Read `schema` first, then one
file of `messages`, then `codec`, `header` and `frame`; `api_keys` is the table of all APIs.
"""
