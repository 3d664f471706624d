"""A Falcon app.

stanchion serve --chdir examples falcon_app
"""

import falcon


class Greeting:
    def on_get(self, request: falcon.Request, response: falcon.Response, name: str) -> None:
        response.media = {"hello": name, "waited_s": request.env.get("stanchion.queue_wait")}


class Echo:
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        response.content_type = request.content_type or falcon.MEDIA_TEXT
        response.data = request.bounded_stream.read()


application = falcon.App()
application.add_route("/hello/{name}", Greeting())
application.add_route("/echo", Echo())
