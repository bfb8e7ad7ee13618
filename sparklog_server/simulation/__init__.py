"""Simulation of a broker in virtual time, on a disk that crashes and a network that loses messages, from one
seed.

It uses the broker's calls and effects, and replaces `daemon`. The same seed gives the same trace. Read `disk`
first, then `cluster`.
"""
