# stanchion serve -c after.conf.py shop:app
signals = "unicorn"  # QUIT drains, TERM does not
workers = 2  # worker_processes
chdir = "/srv/shop"  # working_directory
bind = [
    {"address": "unix:/run/shop/shop.sock", "backlog": 64, "umask": 0o007},
    {"address": "127.0.0.1:8080", "tcp_nodelay": True},
]
timeout = 30
pidfile = "/run/shop/shop.pid"  # pid
errorlog = "/var/log/shop/error.log"  # stderr_path
preload_app = True

# before_fork sent the old master away: it leaves by itself here.


def after_fork(server, worker):
    worker.listen(f"127.0.0.1:{9293 + worker.nr}", tries=-1, delay=5)
