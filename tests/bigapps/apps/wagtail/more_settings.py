"""Adds settings as in production, but for the address and the storage of static files."""

from pathlib import Path

Path("site_of_a_test/settings/test.py").write_text(
    """from .base import *

DEBUG = False
SECRET_KEY = "of a test"
ALLOWED_HOSTS = ["*"]
WAGTAILADMIN_BASE_URL = "http://localhost"
STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
"""
)
