"""The lab: experiments of the literature, run again with the real programs, and shown as pictures.

It may not import the server: stanchion is one of the programs that it runs. An experiment is a TOML file, which
scenario.py reads and checks. engine.py gives each trial a scratch directory and a cage (cage.py): pid 1 of new pid,
network and mount namespaces, in which trial.py starts the servers (servers.py), the witnesses and the load, and sends
one `Measured` back (result.py). trial.py ends when its standard input does, and then the kernel ends every process in
the cage, so nothing can be left behind. report/ makes pages of results and measures nothing.
"""

__version__ = "0.1.0"
