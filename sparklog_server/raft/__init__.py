"""Raft over the metadata log (KIP-595): the leader and the high watermark.

It orders and stores batches without reading their content. Read `roles` for the states of a node, `node` for
its inputs, then `quorum_state`, `leading` and `following` for what it does in each role; `election_store` for
its durable epoch and vote, `durable_log` for its log, `voters` for majorities. The voters do not change yet.
"""
