# The shop behind Caddy: stanchion serve -c caddy.conf.py. Caddyfile is the other half.
wsgi_app = "shop:app"
chdir = "/srv/shop"
workers = 4
threads = 4

# Caddy's group must be let in. The directory has to be there: RuntimeDirectory= in a unit of systemd makes it.
bind = "unix:/run/shop/shop.sock?mode=0660&group=caddy"

# Longer than Caddy keeps a connection that idles (keepalive of its transport, 60 s), so that Caddy is who closes it.
keepalive = 75

# Caddy waits for longer than both together (response_header_timeout, 100 s): the server gives up and says why.
queue_timeout = 60
timeout = 30
