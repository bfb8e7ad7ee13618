"""The outside of a live broker: the only place with sockets, a clock, threads and entropy.

It carries bytes and the time into `broker.Broker` and carries its effects out, and knows nothing of what the bytes mean. One thread runs
everything but syncs and jobs. Read `server` first, then `pump` (effects), `connection` (one socket), `reactor` (who is ready).
"""
