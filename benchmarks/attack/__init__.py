"""Attacks on a broker with the shipped settings, while one honest client produces and fetches 1 KB two
hundred times a second.

__main__.py   starts the broker, the honest client and one attack at a time; prints the figures
target.py     the attacked broker, and the registry of attacks
honest.py     the honest client
memory.py     resident memory of the broker
every other module   attacks
"""
