# The shop behind Envoy: stanchion serve -c envoy.conf.py. envoy.yaml is the other half.
wsgi_app = "shop:app"
chdir = "/srv/shop"
workers = 4
threads = 4

# Envoy's group must be let in. The directory has to be there: RuntimeDirectory= in a unit of systemd makes it.
bind = "unix:/run/shop/shop.sock?mode=0660&group=envoy"

# Envoy sends no files.
static_files = ["/static=/srv/shop/static"]

# Longer than Envoy keeps a connection that idles (idle_timeout of its cluster, 60 s), so that Envoy is who closes it.
keepalive = 75

# Envoy waits for longer than both together (stream_idle_timeout, 100 s): it is the server who gives up, and says why.
queue_timeout = 60
timeout = 30
