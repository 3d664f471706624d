"""A Bottle app; its static files go through wsgi.file_wrapper."""

import os

import bottle

app = bottle.Bottle()


@app.get("/")
def index() -> str:
    return f"hello {bottle.request.query.name}"


@app.post("/json")
def json() -> dict[str, object]:
    return {"got": bottle.request.json}


@app.get("/file")
def file() -> bottle.HTTPResponse:
    directory, name = os.path.split(os.environ["FILE"])
    return bottle.static_file(name, root=directory)
