"""Topics as Arrow, without Spark: what `sparklog.read` and the Spark source share.

It knows the client, the record format and pyarrow, and never Spark.

    formats    keys and values as typed columns
    columns    batches of a partition -> pyarrow.RecordBatch, with decoded keys and values
    ranges     ranges of offsets, and what of them is lost; without pyarrow
    reading    a range -> record batches, by a `client.ranges.RangeReader`
    topic_read `sparklog.read`: `plan` what to read, read it in `workers`, give the columns of a `projection`
    dataset    the same for queries, whose conditions become ranges by `predicates`

Importing this package does not import pyarrow.
"""
