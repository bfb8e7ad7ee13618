"""One segment of a log: the `.log` file, its three indexes, and where the leader epochs begin.

Knows batches by their headers, positions and offsets, and what a damaged segment still holds; knows no
producer, no other segment of the log and no recovery point. Read `segment` first: it writes and finds
batches by the indexes.
"""
