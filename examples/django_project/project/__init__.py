"""A Django project as `startproject` would make it, cut down to what it takes to be served.

stanchion serve --chdir examples/django_project project.wsgi
"""
