"""Records: batches of format v2, their codecs, control batches, the partitioner, and batches as Arrow
columns.

Knows the bytes of a batch and nothing of requests, files or time. Start with `batch.py`, where the layout
is drawn; `control.py` holds the batches that brokers write to each other, `compression.py` the codecs,
`columns.py` the road to and from Arrow.
"""
