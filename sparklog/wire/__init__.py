"""Kafka's wire protocol: bytes become typed messages here and nowhere else, and messages become bytes.

It knows the layout of every message and nothing of what the messages mean; it does no I/O. Read `schema`
first, then one file of `messages`, then `codec`, `header` and `frame`; `api_keys` is the table of all
APIs.
"""
