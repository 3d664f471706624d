# gunicorn's sync workers. stanchion reads this file as it is.
wsgi_app = "shop:app"
bind = "unix:/run/shop/shop.sock"
umask = 0o007
workers = 4
timeout = 30
graceful_timeout = 30
max_requests = 5000
max_requests_jitter = 500
preload_app = True
pidfile = "/run/shop/shop.pid"
errorlog = "/var/log/shop/error.log"
accesslog = "/var/log/shop/access.log"


def post_fork(server, worker):
    worker.log.info("worker %d begins", worker.pid)  # here: connect to the database


def child_exit(server, worker):
    server.log.info("worker %d has ended", worker.pid)  # here: prometheus_client's mark_process_dead
