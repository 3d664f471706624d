"""The app that `dagster-webserver -f definitions.py` serves."""

import atexit
from contextlib import ExitStack
from pathlib import Path

from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PythonFileTarget
from dagster_webserver.app import create_app_from_workspace_process_context

here = Path(__file__).parent
stack = ExitStack()
atexit.register(stack.close)
instance = stack.enter_context(DagsterInstance.get())
target = PythonFileTarget(
    python_file=str(here / "definitions.py"), attribute=None, working_directory=str(here), location_name="test"
)
context = stack.enter_context(WorkspaceProcessContext(instance, target))
app = create_app_from_workspace_process_context(context, "")
