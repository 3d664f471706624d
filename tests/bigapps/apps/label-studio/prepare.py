"""Makes the database and its first user, as `label-studio init` does on its way to a server."""

import os
import sys
from pathlib import Path

import label_studio

sys.path.insert(0, str(Path(label_studio.__file__).parent))
os.makedirs(os.environ["LABEL_STUDIO_BASE_DATA_DIR"], exist_ok=True)

import django

django.setup()

from django.contrib.auth import get_user_model
from django.core.management import call_command
from organizations.models import Organization

call_command("migrate", verbosity=0)
user = get_user_model().objects.create_user(
    email=os.environ["LABEL_STUDIO_USERNAME"], password=os.environ["LABEL_STUDIO_PASSWORD"]
)
user.active_organization = Organization.create_organization(created_by=user, title="test")
user.save()
