"""Spark's own Kafka connector and ours, side by side: one program text, run with each format against one
broker, must have one outcome.

Read `programs.py` first. Intended differences are in `test_differences.py`, with the reason.
"""
