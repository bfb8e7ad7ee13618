"""The other outside: a broker in virtual time, on a disk that crashes and a network that loses, all from one seed.

Knows the broker's calls and effects, and stands in for what `daemon` does with the real world. The same seed gives the same trace. Read
`disk` first, then what builds nodes out of it.
"""
