"""nginx as the floor (`return 200`) and in front of a server."""

import getpass
import grp
import os
from pathlib import Path

from bench.apps import hello
from bench.certificate import Certificate
from bench.servers import Address

# The parameters that uwsgi_pass needs, as in nginx's own uwsgi_params.
UWSGI_PARAMS = "".join(
    f"uwsgi_param {name} {value};\n"
    for name, value in {
        "QUERY_STRING": "$query_string",
        "REQUEST_METHOD": "$request_method",
        "CONTENT_TYPE": "$content_type",
        "CONTENT_LENGTH": "$content_length",
        "REQUEST_URI": "$request_uri",
        "PATH_INFO": "$document_uri",
        "SERVER_PROTOCOL": "$server_protocol",
        "REMOTE_ADDR": "$remote_addr",
        "REMOTE_PORT": "$remote_port",
        "SERVER_PORT": "$server_port",
        "SERVER_NAME": "$server_name",
    }.items()
)


def floor() -> str:
    """The location of the hello case without an app."""
    text = hello.BODY.decode().replace("\n", "\\n")
    return f'default_type text/plain; return 200 "{text}";'


def files(folder: Path) -> str:
    """A folder whose only page without a name is the file `1`."""
    return f"default_type application/octet-stream; root {folder.resolve()}; index 1; sendfile on; tcp_nopush on;"


def static_files(folder: Path) -> str:
    """The same below /static/."""
    directives = "types { text/css css; } sendfile on; tcp_nopush on;"
    return f"rewrite ^/static/(.+) /$1 break; root {folder.resolve()}; index 1; {directives}"


def front(upstream: str, address: Address) -> str:
    """nginx's defaults, as most have them: HTTP/1.0 and a connection per request towards the server."""
    return f"{UWSGI_PARAMS if upstream.startswith('uwsgi') else ''}{upstream}{address};"


def command(directory: Path, port: int, location: str, certificate: Certificate | None = None) -> list[str]:
    """Write the configuration into `directory`; the command that runs it in the foreground."""
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "nginx.conf"
    user = f"user {getpass.getuser()} {grp.getgrgid(os.getgid()).gr_name};" if os.geteuid() == 0 else ""
    temporary = "\n".join(f"{kind}_temp_path temp;" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    ssl, files = "", ""
    if certificate:
        ssl = " ssl http2"
        files = f"ssl_certificate {certificate.certfile}; ssl_certificate_key {certificate.keyfile};"
    config.write_text(f"""{user}
daemon off;
worker_processes 1;
worker_rlimit_nofile 32768;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 8192; }}
http {{
access_log off;
keepalive_requests 100000000;
{temporary}
server {{
listen 127.0.0.1:{port}{ssl} backlog=4096;
{files}
location / {{
{location}
}}
}}
}}
""")
    return ["nginx", "-p", str(directory), "-c", "nginx.conf", "-e", "stderr"]
