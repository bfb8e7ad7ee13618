"""Keys and values as typed columns: text, JSON, Avro and Protobuf, decoded between the record columns and
Spark.

    names      the words that options use for formats and modes
    ddl        a schema as text -> Spark types            types      Spark types -> the Arrow types Spark asks for
    choice     options -> what a key or value becomes, and who decodes it
    decoded    what a decoder gives: an array, and which rows it refused and why
    text, json_text (whole blocks by pyarrow) and json_rows (row by row, for what a block refuses), avro,
    protobuf

A decoder takes an array of byte strings and never fails for what stands in them: a row that cannot be
decoded is null and named, and no row has an effect on another. Libraries are imported when a decoder is
made; those of Avro and Protobuf come with `sparklog[formats]`.
"""  # noqa: E501
