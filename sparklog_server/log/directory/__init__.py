"""A log directory: its identity, its checkpoints, and the directories of its partitions.

Knows every log of one disk by its name and its files; knows no replica, no leader and no topic's settings but
those it is given. Read `log_dir` first. `first_start` and `identity` tell whose directory it is,
`names` whose partition; `log_creation` begins logs and `future_log` copies one from another directory.
"""
