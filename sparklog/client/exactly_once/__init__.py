"""The exactly-once sink: its decisions, and the process that commits or aborts a batch of its tasks.

`decisions` has the records of the topic `__sparklog_commits` and the transactional ids of a sink,
`decision_log` reads and writes that topic, `committer` ends the transactions of a batch. It knows no Spark:
the sink of `sparklog.spark`, the command line and the broker's resolver use it. Read `decisions.py` first.
"""
