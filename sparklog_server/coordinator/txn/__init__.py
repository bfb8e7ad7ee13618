"""The transaction coordinator: one shard for each partition of `__transaction_state`.

Knows transactional ids, the states of their transactions and what is due because of them; knows neither
the partitions that take part nor who writes the markers. Begin with `states.py`: the table of legal moves;
`shard.py` is where a command or a moment finds its way in.
"""
