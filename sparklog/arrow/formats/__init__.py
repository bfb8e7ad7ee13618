"""Keys and values as typed columns: text, JSON, Avro and Protobuf, decoded from columns of bytes.

    names      the words of the options for formats and modes
    types      the types of columns: those of Arrow that Spark has, with their names in DDL
    ddl        schemas as text -> types
    choice     formats -> the type and the decoder of a key or value; text
    decoded    the result of a decoder: an array, and the refused rows with reasons
    json_text (whole blocks), json_rows (row by row), avro, protobuf

A decoder takes an array of byte strings, and their content never makes it fail: a row that cannot be decoded
is null and reported, and has no effect on other rows. Libraries are imported when a decoder is created; those
of Avro and Protobuf come with `sparklog[formats]`.
"""
