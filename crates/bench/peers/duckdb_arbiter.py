"""Runs statements in DuckDB as they come, for a program that asks what DuckDB answers to the same.

A request is a line of JSON on standard input, and so is the answer on standard output:

    {"open": path or null, "read_only": false}                another database
    {"reconnect": true}                                       the same, with new sessions
    {"session": "con1", "sql": …, "rows": false}              {"error": null}, or its first line
    {"session": "con1", "sql": …, "rows": true}               {"error": null, "rows": [["1", null], …]}
    {"session": "con1", "sql": …, "rows": true, "ours": true} under settings that answer as Nandina does

Values are text as DuckDB shows it.
"""
import json
import os
import sys
import threading

import duckdb

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 20
MOST_ROWS = 200_000
# Integers divide to integers, and nulls are larger than everything: as in DataFusion and PostgreSQL.
OURS = {"integer_division": "true", "default_null_order": "'nulls_last_on_asc_first_on_desc'"}


class Arbiter:
    def __init__(self):
        self.open(None, False)

    def open(self, path, read_only):
        self.sessions = {}
        self.database = None
        if path:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        self.database = duckdb.connect(path or ":memory:", read_only=read_only)
        for setting in ("memory_limit = '1GB'", "threads = 1", "TimeZone = 'UTC'"):
            self.database.execute(f"SET GLOBAL {setting}")

    def session(self, name):
        if name not in self.sessions:
            self.sessions[name] = self.database.cursor()
        return self.sessions[name]

    def run(self, request):
        session = self.session(request["session"])
        timer = threading.Timer(SECONDS, session.interrupt)
        timer.start()
        try:
            if not request["rows"]:
                session.execute(request["sql"]).fetchall()
                return {"error": None}
            return {"error": None, "rows": self.rows(session, request)}
        finally:
            timer.cancel()

    def rows(self, session, request):
        sql = request["sql"].strip().rstrip(";")
        is_ours = request.get("ours")
        if is_ours:
            for name, value in OURS.items():
                session.execute(f"SET {name} = {value}")
        try:
            if request.get("once"):
                rows = session.execute(sql).fetchmany(MOST_ROWS + 1)
            else:
                rows = self.texts(session, sql)
        finally:
            if is_ours:
                for name in OURS:
                    session.execute(f"RESET {name}")
        if len(rows) > MOST_ROWS:
            raise ValueError("too many rows")
        return [[None if value is None else str(value) for value in row] for row in rows]

    def texts(self, session, sql):
        try:
            return session.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({sql}\n)").fetchmany(MOST_ROWS + 1)
        except (duckdb.ParserException, duckdb.BinderException):
            # Not everything that answers can be a subquery.
            return session.execute(sql).fetchmany(MOST_ROWS + 1)


def main():
    arbiter = Arbiter()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "open" in request:
                arbiter.open(request["open"], request["read_only"])
                answer = {"error": None}
            elif "reconnect" in request:
                arbiter.sessions = {}
                answer = {"error": None}
            else:
                answer = arbiter.run(request)
        except Exception as error:  # Whatever it is, the other side decides what it means.
            answer = {"error": (str(error).strip().splitlines() or [type(error).__name__])[0]}
        print(json.dumps(answer), flush=True)


main()
