"""What becomes of a stream from topic to topic when something dies at the worst moment: every number is
there once, or the test fails.

    test process                     a Spark (`program.py`)                 its Python workers (`hooked.py`)
    broker, rules, counting   ──►    runs queries, answers by lines         ask at every point, and wait for what to do
         ▲                                                                        │
         └───────────────────────────── points.py, one connection per point ──────┘

A test says what happens at which point ("in batch 1, when the decision is made, kill -9 the JVM"), runs
the query again on its checkpoint until it ends by itself, and counts what a read-committed reader finds.
Read `points.py` first, then `harness.py`. Nothing waits by time.
"""  # noqa: E501
