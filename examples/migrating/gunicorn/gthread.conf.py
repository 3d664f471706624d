# gunicorn's gthread workers. stanchion reads this file as it is.
wsgi_app = "shop:app"
bind = "127.0.0.1:8000"
worker_class = "gthread"
workers = 2
threads = 4
worker_connections = 1000
keepalive = 75
timeout = 60
forwarded_allow_ips = "127.0.0.1"
errorlog = "-"
accesslog = "-"
