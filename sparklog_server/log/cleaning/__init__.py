"""Removal of records by `cleanup.policy`: compaction keeps the newest of each key, retention removes whole
segments.

Knows sealed segments, and how their files are replaced or removed so that a crash at any step leaves a whole
log; knows no partition and no schedule, which `sparklog_server.replica.log_cleaner` and
`sparklog_server.replica.retention` have. Read `compaction` first, then `cleaner` and `swap`.
"""
