"""The metadata of the cluster: the durable records of `__cluster_metadata` and the immutable image that they
make.

This package decides and stores nothing: the controller decides, raft stores. Read `records` for the record
formats, then `image` for their meaning.
"""
