"""Authentication and access: what a client proves of itself, and what it may do.

Machines and tables without I/O, clock or entropy. SASL: read `sasl.py` first, then `scram.py`, `plain.py` and
`oauth.py`.
"""
