"""Runs the notebooks of this directory where Databricks is not: `python -m notebooks.tools run quick_start`.

`cells` reads a notebook, `ambient` is what Databricks has lying about (`dbutils`, `display`), `runner`
executes, `ipynb` writes what was run, with what it showed, for Jupyter. Read `cells.py` first.
"""
