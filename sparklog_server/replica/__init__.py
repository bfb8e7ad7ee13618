"""Partitions and their replicas: committed offsets, and the requests that wait for them.

Knows the log and nothing of requests: waiting requests are opaque tokens that go in with an offset and
come out when the high watermark has passed it. Read `leader` first (the rule of the high watermark), then
`partition`, then `replica_manager`.
"""
