"""The environment of a live broker: the only package with sockets, a clock, threads and entropy.

It passes bytes and the time to `broker.Broker` and executes its effects; it does not interpret the bytes. One
thread runs everything except syncs and jobs. Read `server` first, then `pump` (effects), `connection` (one
socket), `reactor` (readiness of descriptors).
"""
