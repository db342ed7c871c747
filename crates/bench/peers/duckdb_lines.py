"""DuckDB as a child process: reads requests, one JSON object a line, and answers each with one line.

{"load": [statements]}  a new database with these tables
{"query": sql}          the rows: numbers as {"n": exact} or {"f": floating-point}, moments as {"t": ISO 8601},
                        structs as lists of their fields, everything else as JSON has it
"""
import datetime
import decimal
import json
import sys

import duckdb


def cell(value):
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return {"n": str(value)}
    if isinstance(value, decimal.Decimal):
        return {"n": format(value, "f")}
    if isinstance(value, float):
        return {"f": repr(value)}
    if isinstance(value, (datetime.date, datetime.datetime, datetime.time)):
        return {"t": value.isoformat()}
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, (list, tuple)):
        return [cell(item) for item in value]
    if isinstance(value, dict):
        return [cell(item) for item in value.values()]
    return {"t": str(value)}


def main():
    connection = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "load" in request:
                connection = duckdb.connect()
                connection.execute("SET threads = 1")
                for statement in request["load"]:
                    connection.execute(statement)
                answer = {}
            else:
                rows = connection.execute(request["query"]).fetchall()
                answer = {"rows": [[cell(value) for value in row] for row in rows]}
        except Exception as error:  # whatever it is, it is the answer
            answer = {"error": " ".join(str(error).split())[:400]}
        print(json.dumps(answer), flush=True)


main()
