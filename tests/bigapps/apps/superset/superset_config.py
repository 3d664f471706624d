"""As in production, but for what a database and a cache of its own would hold."""

from pathlib import Path

SECRET_KEY = "of a test, and long enough to be taken"
# Flask-SQLAlchemy and alembic would look for a relative path in different folders.
SQLALCHEMY_DATABASE_URI = f"sqlite:///{Path(__file__).with_name('superset.db')}"
PREVENT_UNSAFE_DB_CONNECTIONS = False
WTF_CSRF_ENABLED = True
TALISMAN_ENABLED = False
