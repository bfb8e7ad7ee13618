"""One partition's records on disk, in Kafka's files, and the directory that holds many of them.

Knows batches as opaque bytes with a header, offsets, epochs and producers' sequences; knows nothing of
requests or replicas, and receives high watermarks as numbers. Read `partition_log` first: the rest of the
broker calls it. `segments` holds its segments, `truncation` cuts them. Each room may know those before it:

    segment      one `.log` file, its indexes, leader epochs; what a damaged one still holds
    producers    validation of batches, sequences, transactions, and their state from snapshots
    lookup       offset to position, timestamp to record, aborted transactions
    cleaning     compaction and retention, and how files are replaced or removed
    recovery     the state of a log from its files
    directory    the log directory: identity, checkpoints, the directories of its partitions
"""
