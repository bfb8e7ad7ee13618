"""Consumer groups: classic ones (KIP-62, KIP-345, KIP-429), those of KIP-848, and the offsets that both
commit.

Read `shard.py` first: a shard has the groups whose ids map to its partition of `__consumer_offsets`.
`records.py` has the records of that partition in Kafka's formats, `classic.py` and `modern.py` the two kinds
of group, `offsets.py` the committed offsets.
"""
