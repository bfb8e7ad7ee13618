"""One partition's records on disk, in Kafka's files, and the directory that holds many of them.

Knows batches as opaque bytes with a header, offsets, epochs and producers' sequences; knows nothing of
requests or replicas, and receives high watermarks as numbers. Read `partition_log` first: the rest of the
broker calls it. `segment` and the two indexes lie under it, `recovery` restores it after a crash,
`log_dir` holds the partitions of one disk.
"""
