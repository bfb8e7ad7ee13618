"""The transaction coordinator: one shard for each partition of `__transaction_state`.

Knows transactional ids, the states of their transactions, and their requests to the broker; does not know
how markers are written to the partitions. Read `states.py` first, the table of legal moves, then `shard.py`,
which takes commands and time.
"""
