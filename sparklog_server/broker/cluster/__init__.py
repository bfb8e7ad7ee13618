"""This node among others: its metadata quorum, the active controller while it leads, its registrations and
heartbeats, and the links over which it reaches other nodes.

Knows raft, the controller's decisions and the published metadata; must not know a request's handler. Read
`quorum` first: `active_controller` and `metadata_log` live under it, and `replication` fetches what other
brokers lead.
"""
