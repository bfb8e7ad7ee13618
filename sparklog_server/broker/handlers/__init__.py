"""One file per family of APIs. The request is decoded already: check, call the owner, return the answer or
a `Parked`.
"""
