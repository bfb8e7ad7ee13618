"""Files, through one door.

Knows paths, bytes and how to make them durable; knows nothing of records, partitions or Kafka. Read `door`
first: the rest of the broker uses nothing else. `os_disk` implements it on the file system; `checkpoint`
has the small text files that Kafka keeps beside its logs.
"""
