# gunicorn with uvicorn's workers. stanchion reads this file as it is.
wsgi_app = "api:app"
bind = "127.0.0.1:8000"
worker_class = "uvicorn.workers.UvicornWorker"
workers = 2
worker_connections = 500
keepalive = 10
graceful_timeout = 20
max_requests = 10000
forwarded_allow_ips = "127.0.0.1"
accesslog = "-"
errorlog = "-"
