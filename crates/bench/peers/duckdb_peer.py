"""Runs one query in DuckDB."""
import duckdb

import peer

arguments = peer.arguments()
connection = duckdb.connect(arguments.database, read_only=True) if arguments.database else duckdb.connect()
connection.execute(f"SET threads = {arguments.threads}")
connection.execute(f"SET temp_directory = '{arguments.temp}'")
connection.execute("SET preserve_insertion_order = false")
if arguments.memory:
    connection.execute(f"SET memory_limit = '{arguments.memory}B'")
if not arguments.database:
    for name, path in arguments.paths.items():
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
peer.report(duckdb.__version__, lambda: connection.execute(arguments.sql).fetchall())
