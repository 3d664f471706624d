"""changedetection.io as its `main` makes it, without watches of its own and for another server than Werkzeug's."""

from pathlib import Path
from typing import Any

from changedetectionio import __version__, store
from changedetectionio.flask_app import changedetection_app
from changedetectionio.pluggy_interface import inject_datastore_into_plugins, register_builtin_restock_plugins

FOLDER = Path("datastore").absolute()
FOLDER.mkdir(exist_ok=True)
datastore = store.ChangeDetectionStore(
    datastore_path=str(FOLDER), version_tag=__version__, include_default_watches=False
)
register_builtin_restock_plugins()
inject_datastore_into_plugins(datastore)
app = changedetection_app(
    {"datastore_path": str(FOLDER), "batch_mode": False, "recheck_watches": None, "recheck_repeat_count": 1}, datastore
)
app.config["datastore_path"] = str(FOLDER)


@app.context_processor
def globals_of_templates() -> dict[str, Any]:
    return {
        "right_sticky": f"v{__version__}",
        "new_version_available": False,
        "has_password": False,
        "socket_io_enabled": False,
        "all_paused": False,
        "all_muted": False,
        "llm_configured": False,
        "unread_changes_count": datastore.unread_changes_count,
    }
