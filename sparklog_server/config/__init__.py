"""Every setting, defined once: Kafka's key, type, default, bounds and a sentence of what it does.

This room knows names and values; it knows no disk, no socket and no cluster. Read `keys` for the vocabulary, then
`topic_settings` and `settings` for the fields, `load` for where the values come from. `without_effect` lists Kafka's remaining keys: known,
and said to do nothing.
"""
