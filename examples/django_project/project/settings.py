"""No database, no sessions: two views, and the middleware that most projects have."""

import os

# An example needs no secret; a real project has one in its environment and no default.
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "an-example-has-no-secrets-but-this-must-be-long-enough")
DEBUG = False
ALLOWED_HOSTS = ["*"]

ROOT_URLCONF = "project.urls"
WSGI_APPLICATION = "project.wsgi.application"
INSTALLED_APPS: list[str] = []
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

USE_TZ = True
