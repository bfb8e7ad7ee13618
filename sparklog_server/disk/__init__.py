"""The port to files and its implementations.

Contains paths, bytes and syncs, but no records, partitions or protocol. Read `door` first: the rest of the
broker uses nothing else. `os_disk` implements it on the file system; `checkpoint` has the small text files
that Kafka keeps beside its logs.
"""
