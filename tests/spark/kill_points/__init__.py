"""A stream from topic to topic whose processes are killed at critical points: every number is there once, or
the test fails.

    test process                a Spark (`program.py`)              its Python workers (`hooked.py`)
    broker, rules, counting ──► runs queries, replies by lines      ask at every point, and wait for an action
         ▲                                                                │
         └──────────────────── points.py, one connection per point ───────┘

A test gives an action for a point ("in batch 1, when the decision is made, kill -9 the JVM"), runs
the query again on its checkpoint until it ends by itself, and counts the records of a read_committed reader.
Read `points.py` first, then `harness.py`. Nothing waits by time.
"""
