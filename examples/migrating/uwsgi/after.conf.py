# stanchion serve -c after.conf.py
chdir = "/srv/shop"
wsgi_app = "shop:app"
workers = 4  # processes
threads = 2
bind = "unix:/run/shop/shop.sock?mode=0660"  # socket, chmod-socket
timeout = 30  # harakiri
max_requests = 5000
max_memory = "512M"  # reload-on-rss
graceful_timeout = 30  # worker-reload-mercy
limit_request_field_size = 32768  # buffer-size
pidfile = "/run/shop/shop.pid"
errorlog = "/var/log/shop/error.log"  # logto
admin = "unix:/run/shop/stats.sock"  # stats
raw_env = ["SHOP_ENV=production"]
