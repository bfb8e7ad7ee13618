"""Queries that are killed at a named moment and started again: every record is in the Delta table once.

`watched` is the source with a question before and after each hook, `referee` answers it and strikes, `job`
is the driver that dies.
"""
