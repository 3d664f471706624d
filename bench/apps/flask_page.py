"""A page as applications have them: a Flask view that renders a Jinja template of 40 rows, with JSON for a script."""

from flask import Flask, render_template, request
from flask.typing import ResponseReturnValue

SOURCE = """<!doctype html>
<title>{{ title }}</title>
<h1>{{ title }}</h1>
<p>Asked for {{ path }}.</p>
<table>
{% for row in rows %}
<tr class="{{ loop.cycle('odd', 'even') }}">
<td>{{ row.number }}</td><td>{{ row.name }}</td><td>{{ '%.2f' % row.price }}</td></tr>
{% endfor %}
</table>
<script>const rows = {{ rows | tojson }};</script>
"""
ROWS = [{"number": number, "name": f"Article <{number}>", "price": number * 1.25} for number in range(40)]

app = Flask(__name__)
# Once: a template from a file is kept compiled, too.
TEMPLATE = app.jinja_env.from_string(SOURCE)


@app.get("/")
def index() -> ResponseReturnValue:
    return render_template(TEMPLATE, title="Articles & prices", path=request.path, rows=ROWS)
