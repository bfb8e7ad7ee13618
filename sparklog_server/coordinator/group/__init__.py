"""Consumer groups: classic ones (KIP-62, KIP-345, KIP-429), those of KIP-848, and the offsets that both
commit.

`shard.py` first: one shard keeps the groups whose id falls on its partition of `__consumer_offsets`.
`records.py` is what lies there, in Kafka's own formats; `classic.py` and `modern.py` are the two kinds of
group; `offsets.py` is what they have committed.
"""
