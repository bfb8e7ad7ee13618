"""The group and transaction coordinators of this broker: their shards over the internal topics that this node
leads, and the ways to partitions and other brokers that they need.

The decisions are those of `sparklog_server.coordinator`, which this room feeds with requests, time and
committed records; it must not decide for them. Read `coordinator_shards` first.
"""
