# /srv/shop/.venv/bin/stanchion serve -c after.conf.py
chdir = "/srv/shop"  # python-path
wsgi_app = "wsgi:application"  # WSGIScriptAlias
bind = "unix:/run/shop/shop.sock?mode=0660&group=www-data"
workers = 2  # processes
threads = 4
max_requests = 5000  # maximum-requests
timeout = 30  # request-timeout
graceful_timeout = 15  # graceful-timeout
queue_timeout = 45  # queue-timeout
backlog = 100  # listen-backlog
