"""The state of a log from its files, after a clean stop or a crash, and what a crash or a fault left of them.

Knows the recovery point, below which nothing may be missing, and cuts only above it; knows one log and no
other partition. Read `log_loader` first: it calls the checks of `completeness` and the copies of `cuts`.
"""
