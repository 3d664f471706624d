"""A Falcon app."""

import falcon


class Thing:
    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        response.text = f"hello {request.get_param('name')}"

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        response.media = {"got": request.get_media()}


app = falcon.App()
app.add_route("/", Thing())
