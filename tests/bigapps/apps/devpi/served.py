"""The app that `devpi-server --serverdir server` gives to its own server."""

from devpi_server.config import get_pluginmanager, parseoptions
from devpi_server.main import xom_from_config

config = parseoptions(get_pluginmanager(), ["devpi-server", "--serverdir", "server", "--offline-mode"])
app = xom_from_config(config).create_app()
