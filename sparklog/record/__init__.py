"""Records: batches of format v2, their codecs, control batches, and batches as Arrow
columns.

Contains the format of a batch, but no requests, files or time. Start with `batch.py`, where the layout is
drawn; `control.py` has the batches that brokers write for brokers and readers, `codec.py` the codecs and
`compression.py` their use, `columns.py` the conversion to and from Arrow.
"""
