# The shop behind nginx: stanchion serve -c nginx.conf.py. nginx.conf is the other half.
wsgi_app = "shop:app"
chdir = "/srv/shop"
workers = 4
threads = 4

# nginx's group must be let in. The directory has to be there: RuntimeDirectory= in a unit of systemd makes it.
bind = "unix:/run/shop/shop.sock?mode=0660&group=www-data"

# Longer than nginx keeps a connection that idles (keepalive_timeout of its upstream, 60 s), so that nginx closes it.
keepalive = 75

# nginx waits for longer than both together (proxy_read_timeout, 100 s): it is the server who gives up, and says why.
queue_timeout = 60
timeout = 30
