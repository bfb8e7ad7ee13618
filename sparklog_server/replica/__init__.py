"""Partitions and their replicas: what is committed, and who waits for it.

Knows the log and nothing of requests: waiting requests are opaque tokens that go in with an offset and
come out when the high watermark has passed it. Read `leader` first (the rule of the high watermark), then
`partition`, then `partitions`.
"""
