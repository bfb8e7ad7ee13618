"""One partition's records on disk, in Kafka's files, and the directory that holds many of them.

Knows batches as opaque bytes with a header, offsets, epochs and producers' sequences; knows nothing of
requests or replicas, and of high watermarks only the numbers it is given. Read `partition_log` first: it
is what the rest of the broker calls; `segment` and the two indexes lie under it, `recovery` brings it back
after a crash, `log_dir` holds the partitions of one disk.
"""
