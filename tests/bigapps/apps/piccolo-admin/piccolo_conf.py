from pathlib import Path

from piccolo.conf.apps import AppRegistry
from piccolo.engine.sqlite import SQLiteEngine

DB = SQLiteEngine(path=str(Path(__file__).with_name("piccolo.sqlite")))
APP_REGISTRY = AppRegistry(apps=["piccolo_admin.piccolo_app"])
