"""A server from its configuration to its exit code, for the command line and for programs that make one themselves."""

import gc
import os
import sys
from collections.abc import Iterable
from functools import partial

from stanchion import _stanchion, standard
from stanchion.configuration import Configuration
from stanchion.loader import AppHost


def serve(configuration: Configuration, host: AppHost) -> int:
    """Run the process tree. Returns in the master and in each worker, with the exit code of that process."""
    effective = configuration.effective
    warn(effective.warnings)
    if effective.values["check_config"] or effective.values["print_config"]:
        from stanchion import check

        code = check.as_gunicorn(configuration, host)
        leave_threads_behind(code)
        return code
    configuration.apply()
    launcher = None
    if effective.values["daemon"]:
        from stanchion.daemon import detach

        launcher = detach(effective, host)
        configuration.hooks.are_of_this_master()
    standard.once_imported("logging", partial(_lend_loggers, configuration))
    # The children share what there is by now, as long as no collection of garbage writes to it.
    gc.collect()
    gc.freeze()
    master = os.getpid()
    code = _stanchion.serve(effective.json, host, launcher)
    if os.getpid() == master:
        leave_threads_behind(code)
    else:
        from stanchion import leaving

        leaving.leave_in_time(code)
    return code


def warn(warnings: Iterable[str]) -> None:
    """Say what is not quite as it was meant, at the terminal."""
    for warning in warnings:
        # Imported here, as all that only some commands need: else each process of a server would have it in its memory.
        from stanchion.output import complain

        complain(f"stanchion: warning: {warning}")


def _lend_loggers(configuration: Configuration) -> None:
    """Python's logging has been imported, in whichever process it was."""
    from stanchion import server_log

    server_log.lend(configuration)


def leave_threads_behind(code: int) -> None:
    """End the process if others' threads would keep it: Python waits for all but daemons, for ever if need be."""
    if "threading" not in sys.modules:
        return
    from stanchion import leaving

    if leaving.others():
        leaving.end_now(code)
