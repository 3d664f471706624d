"""A Bottle app, made by a factory.

stanchion serve --chdir examples "bottle_app:create_app()"
"""

import bottle


def create_app() -> bottle.Bottle:
    app = bottle.Bottle()

    @app.get("/hello/<name>")
    def hello(name: str) -> dict[str, object]:
        return {"hello": name, "waited_s": bottle.request.environ.get("stanchion.queue_wait")}

    @app.post("/echo")
    def echo() -> bytes:
        bottle.response.content_type = bottle.request.content_type or "text/plain"
        return bottle.request.body.read()

    return app
