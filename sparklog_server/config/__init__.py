"""Every setting, defined once: Kafka's key, type, default, bounds and a sentence that describes it.

This package knows names and values; it knows no disk, no socket and no cluster. Read `keys` for the
vocabulary,
then `topic_settings` and `settings` for the fields, and `load` for the sources of values. `without_effect`
lists
Kafka's remaining keys, which are accepted and have no effect.
"""
