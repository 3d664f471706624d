"""A small Flask view that answers JSON, as most services do."""

from flask import Flask, jsonify, request
from flask.typing import ResponseReturnValue

app = Flask(__name__)


@app.get("/")
def index() -> ResponseReturnValue:
    return jsonify(message="Hello, World!", path=request.path, numbers=list(range(10)))
