"""Makes the tables of the group-by and join questions of H2O.ai's benchmark, the same ones each time.

`g`: id1, id2 and id3 are strings, id4, id5 and id6 integers; 100 values each, a hundredth of the rows in id3 and id6.
`x` and the tables that it is joined with: integer keys id1, id2, id3 of three sizes, the same as strings id4, id5, id6.
Nine of ten keys of `x` are found in the other tables.
"""
import argparse
import os

import duckdb

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, required=True)
parser.add_argument("--out", required=True)
arguments = parser.parse_args()
rows = arguments.rows
os.makedirs(arguments.out, exist_ok=True)
connection = duckdb.connect()


def write(name, sql):
    path = os.path.join(arguments.out, f"{name}.parquet")
    if not os.path.exists(path):
        connection.execute(f"COPY ({sql}) TO '{path}.new' (FORMAT parquet)")
        os.rename(f"{path}.new", path)


def draw(column, values):
    """A number from 1 to `values`, for row i."""
    return f"(hash(i * 31 + {column}) % {max(values, 1)} + 1)::INTEGER"


def name(number, digits):
    return f"'id' || lpad(({number})::VARCHAR, {digits}, '0')"


many = rows // 100
write(
    "g",
    f"""
    SELECT {name(draw(1, 100), 3)} AS id1, {name(draw(2, 100), 3)} AS id2, {name(draw(3, many), 10)} AS id3,
           {draw(4, 100)} AS id4, {draw(5, 100)} AS id5, {draw(6, many)} AS id6,
           {draw(7, 5)} AS v1, {draw(8, 15)} AS v2, round((hash(i * 31 + 9) % 100000000) / 1e6, 6)::DOUBLE AS v3
    FROM range({rows}) AS r(i)""",
)

small, medium, big = max(rows // 1_000_000, 1), max(rows // 1_000, 1), rows


def found(size):
    """Keys of which nine of ten are found among those from 1 to `size`."""
    return max(size * 10 // 9, 1)


def keys(of_small, of_medium, of_big):
    numbers = {1: of_small, 2: of_medium, 3: of_big}
    integers = [f"{number} AS id{column}" for column, number in numbers.items() if number]
    strings = [f"'id' || ({number}) AS id{column + 3}" for column, number in numbers.items() if number]
    return ", ".join(integers + strings)


def value(column):
    return f"round((hash(i * 31 + {column}) % 100000000) / 1e6, 6)::DOUBLE"


in_x = keys(draw(11, found(small)), draw(12, found(medium)), draw(13, found(big)))
write("x", f"SELECT {in_x}, {value(14)} AS v1 FROM range({rows}) AS r(i)")
one = "(i + 1)::INTEGER"
write("small", f"SELECT {keys(one, None, None)}, {value(15)} AS v2 FROM range({small}) AS r(i)")
in_medium = keys(draw(16, found(small)), one, None)
write("medium", f"SELECT {in_medium}, {value(17)} AS v2 FROM range({medium}) AS r(i)")
in_big = keys(draw(18, found(small)), draw(19, found(medium)), one)
write("big", f"SELECT {in_big}, {value(20)} AS v2 FROM range({big}) AS r(i)")
