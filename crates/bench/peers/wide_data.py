"""Makes tables of wide rows, the same ones each time.

`documents`: a number, a key of 16 characters in no order, and a JSON text of some 2,000 characters.
`wide`: a number and 99 columns of eight bytes, the first few of them with few values; half as long.
`records`: those of the sort benchmark, a key of ten characters and 90 more; twenty times as long.
"""
import argparse
import os

import duckdb

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, required=True, help="rows of documents")
parser.add_argument("--out", required=True)
arguments = parser.parse_args()
os.makedirs(arguments.out, exist_ok=True)
connection = duckdb.connect()
FIELDS, COLUMNS = 36, 99


def write(name, sql):
    path = os.path.join(arguments.out, f"{name}.parquet")
    if not os.path.exists(path):
        connection.execute(f"COPY ({sql}) TO '{path}.new' (FORMAT parquet)")
        os.rename(f"{path}.new", path)


def digits(column, count):
    """So many hexadecimal digits, for row i."""
    return f"left(md5((i * 1009 + {column})::VARCHAR), {count})"


fields = " || ',' || ".join(
    f"'\"field{field:02}\":\"{'user item note city'.split()[field % 4]} ' || {digits(field, 32)} || '\"'"
    for field in range(FIELDS)
)
write(
    "documents",
    f"SELECT i AS id, {digits(999, 16)} AS k, '{{' || {fields} || '}}' AS doc FROM range({arguments.rows}) AS r(i)",
)


def number(column):
    values = 100 if column < 5 else 1 << 62
    return f"(hash(i * 1009 + {column}) % {values})::BIGINT AS c{column}"


columns = ", ".join(number(column) for column in range(COLUMNS))
write("wide", f"SELECT i AS id, {columns} FROM range({arguments.rows // 2}) AS r(i)")
rest = f"md5((i * 3)::VARCHAR) || md5((i * 3 + 1)::VARCHAR) || {digits(3, 26)}"
write("records", f"SELECT {digits(0, 10)} AS k, {rest} AS p FROM range({arguments.rows * 20}) AS r(i)")
