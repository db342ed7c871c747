"""Writes TPC-DS into a folder: a Parquet file for each table, and each query as a file.

Needs `pip install duckdb==1.5.5 duckdb-extension-tpcds==1.5.5`, whose extension makes the data and knows the queries."""
import argparse
import glob
import os

import duckdb
import duckdb_extension_tpcds

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--folder", required=True)
parser.add_argument("--scale", type=float, default=0.01)
arguments = parser.parse_args()
os.makedirs(arguments.folder, exist_ok=True)
home = os.path.dirname(duckdb_extension_tpcds.__file__)
connection = duckdb.connect()
connection.execute(f"LOAD '{glob.glob(f'{home}/extensions/**/*.duckdb_extension', recursive=True)[0]}'")
connection.execute(f"CALL dsdgen(sf = {arguments.scale})")
for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
    connection.execute(f"COPY {table} TO '{arguments.folder}/{table}.parquet'")
for number, query in connection.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall():
    with open(f"{arguments.folder}/q{number:02}.sql", "w", encoding="utf-8") as file:
        file.write(query)
