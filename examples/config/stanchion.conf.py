# A shop behind nginx: `stanchion serve` reads this file in the directory where it is started.
# Each name is a setting (docs/reference/settings.md) or a hook (docs/reference/hooks.md).
import os

wsgi_app = "shop:app"
proc_name = "shop"

# Where clients connect: nginx's group must be let in. A bind of the command line replaces this one.
bind = "unix:/run/shop/shop.sock?mode=0660&group=www-data"
# Longer than nginx keeps an idle connection to us, so that nginx closes it.
keepalive = 75

# How many requests run at once: 4 x 4.
workers = int(os.environ.get("WEB_CONCURRENCY", "4"))
threads = 4
# A request that runs longer gets 504, and its worker is replaced.
timeout = 30
# TERM gives requests this long. systemd's TimeoutStopSec has to be longer.
graceful_timeout = 30

# The line: past these a client gets 503 with Retry-After.
max_waiting = 1000
queue_timeout = 20
# Health checks get a seat while all others are busy.
lane = ["health=/healthz priority=0 seats=1 waiting=16", "default priority=10"]

# Sizes take units; times are seconds.
limit_request_body = "64MB"
max_memory = "400MB"

# An access log with the time in the line. It is off by default.
accesslog = "/var/log/shop/access.log"
access_log_json = True
errorlog = "-"

# For `stanchion top`, `stanchion doctor` and Prometheus; for `stanchion ctl`.
admin = "127.0.0.1:8299"
control = "unix:/run/shop/control"


def post_fork(server, worker):
    # Here: connect to the database, start threads. The app was imported before the fork, in another process.
    worker.log.info("worker %d is process %d", worker.nr, worker.pid)
