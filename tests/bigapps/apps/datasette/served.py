from datasette.app import Datasette

# Datasette leaves out what a query has not found in time. The rows of a table have 10 ms, unless the file is immutable.
LONG_MS = 60_000
LIMITS = dict.fromkeys(["sql_time_limit_ms", "facet_time_limit_ms", "facet_suggest_time_limit_ms"], LONG_MS)

app = Datasette([], immutables=["shop.db"], settings={"max_csv_mb": 0, **LIMITS}).app()
