"""Checks and repairs the log directories of a stopped broker: `sparklog log verify`, `sparklog log repair`.

Knows the files of `sparklog_server.log` and the metadata records, reads every file whole, and names each
fault; knows no running broker, no replica and no quorum, and prints nothing. Read `examine_directory` first:
it calls the checks of segments, indexes and small files. `repair` makes a plan from what they find.
"""
