"""Writes shop.db: 50,000 rows, always the same."""

import sqlite3
from contextlib import closing

with closing(sqlite3.connect("shop.db")) as database:
    database.execute("create table items (id integer primary key, name text, price real)")
    rows = ((number, f"item number {number} ü", number * 1.25) for number in range(1, 50_001))
    database.executemany("insert into items values (?, ?, ?)", rows)
    database.commit()
