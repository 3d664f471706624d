from pathlib import Path

import marimo

notebook = Path(__file__).with_name("notebook.py")
app = marimo.create_asgi_app(include_code=True).with_app(path="", root=str(notebook)).build()
