"""Runs the notebooks of this directory where Databricks is not: `python -m notebooks.tools run quick_start`.

`cells` reads a notebook, `ambient` has the globals of Databricks (`dbutils`, `display`), `runner`
executes, `ipynb` writes an executed notebook with its output for Jupyter. Read `cells.py` first.
"""
