"""Imports Parquet files into a database file of DuckDB's."""
import argparse
import os

import duckdb

parser = argparse.ArgumentParser()
parser.add_argument("--database", required=True)
parser.add_argument("--data", required=True, help="folder of the Parquet files")
parser.add_argument("--tables", required=True, help="names of the tables, separated by commas")
arguments = parser.parse_args()
connection = duckdb.connect(arguments.database)
for name in arguments.tables.split(","):
    path = os.path.join(arguments.data, f"{name}.parquet")
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet('{path}')")
connection.execute("CHECKPOINT")
