# The shop behind HAProxy: stanchion serve -c haproxy.conf.py. haproxy.cfg is the other half.
wsgi_app = "shop:app"
chdir = "/srv/shop"
workers = 4
threads = 4

# HAProxy's group must be let in. The directory has to be there: RuntimeDirectory= in a unit of systemd makes it.
bind = "unix:/run/shop/shop.sock?mode=0660&group=haproxy"

# send-proxy-v2-ssl: a connection on the socket without such a header is refused.
proxy_protocol = "v2"
# HAProxy does not read HTTP, so what says X-Forwarded-For or -Proto is a client, also one on this host.
forwarded_allow_ips = "unix"

# HAProxy passes on what clients speak: those that have chosen h2 begin with it.
http_protocols = "h2,h1"
http2_cleartext = "prior-knowledge"

# HAProxy sends no files.
static_files = ["/static=/srv/shop/static"]

# A client's connection is one here, so what idles is closed here.
keepalive = 30

# HAProxy waits for longer than both together (timeout tunnel, 100 s): it is the server who gives up, and says why.
queue_timeout = 60
timeout = 30
