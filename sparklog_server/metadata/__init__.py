"""What the cluster is: the durable records of `__cluster_metadata` and the immutable image they add up to.

This room decides nothing and keeps nothing: the controller decides, raft keeps. Read `records` for what is
written, then `image` for what it means.
"""
