"""Files, through one door.

Knows paths, bytes and what it takes to make them durable; knows nothing of records, partitions or Kafka.
Read `door` first: it is all that the rest of the broker sees; `os_disk` is the real one, `checkpoint` the
small text files Kafka keeps beside its logs.
"""
