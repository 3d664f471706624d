"""The views are few enough to stand where they are routed."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path


def hello(request: HttpRequest, name: str) -> HttpResponse:
    return JsonResponse({"hello": name, "waited_s": request.environ.get("stanchion.queue_wait")})


def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body, content_type=request.content_type or "text/plain")


urlpatterns = [
    path("hello/<name>", hello),
    path("echo", echo),
]
