"""The pages."""

from django.contrib import admin
from django.contrib.auth.models import Permission
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.urls import path

SOURCE = """<!doctype html>
<title>{{ title }}</title>
<table>
{% for row in rows %}
<tr class="{% cycle 'odd' 'even' %}"><td>{{ row.pk }}</td><td>{{ row.name }}</td><td>{{ row.content_type }}</td></tr>
{% endfor %}
</table>
"""


def index(request: HttpRequest) -> HttpResponse:
    # The tables of the apps have two dozen of them.
    rows = Permission.objects.select_related("content_type")
    return HttpResponse(engines["django"].from_string(SOURCE).render({"title": "Rights", "rows": rows}, request))


urlpatterns = [path("", index), path("admin/", admin.site.urls)]
