"""Coordinators: shards that replay their durable state from one partition of an internal topic.

Knows records, decisions and time as an argument; knows neither the log nor replicas nor sockets. Read
`shard.py` first, the interface of a shard to `runtime.py`. `group/` has the shard of groups, `txn/` that of
transactions.
"""
