"""Raft over the metadata log (KIP-595): the leader and the high watermark.

It orders and keeps batches and does not know what they say. Read `node` for the life of a voter, then
`election_state` for what it must never forget, `leading` for the high watermark, `voters` for what a
majority is. One voter is the whole quorum for now; followers and elections among several come as further
roles beside `leading`.
"""
