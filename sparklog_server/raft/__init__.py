"""Raft over the metadata log (KIP-595): the leader and the high watermark.

It orders and stores batches without reading their content. Read `node` for the states of a voter, then
`election_state` for its durable epoch and vote, `leading` for the high watermark, `voters` for majorities.
The quorum has one voter so far; followers and elections among several voters come as further roles beside
`leading`.
"""
