"""Notebooks in the source form of Databricks, which imports them as they are; `make notebooks` runs them
all here.
"""
