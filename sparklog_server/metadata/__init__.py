"""The metadata of the cluster: the durable records of `__cluster_metadata` and the immutable image built from
them.

The controller makes the decisions, raft stores the records; this package does neither. Read `records` for the
record formats, then `image` for their meaning.
"""
