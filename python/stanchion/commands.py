"""The commands of the command line."""

COMMANDS = (
    ("serve", "[FLAGS] [APP]", "Serve a WSGI or ASGI app (the word serve is optional)"),
    ("check", "[FLAGS] [APP]", "Show the settings in effect"),
    ("ctl", "COMMAND", "Command a running server"),
    ("top", "[FLAGS]", "Look at a running server"),
    ("doctor", "[FLAGS]", "Say why connections get lost"),
    ("plan", "DIR|LOG [FLAGS]", "Say how many workers and threads it takes"),
    ("fleet", "FRONT [FLAGS]", "Print a balancer's file for the settings"),
    ("lab", "COMMAND", "Run stanchion-lab, the experiments on waiting lines"),
    ("help", "[WHAT]", "Explain a command, flag or setting"),
    ("completion", "SHELL", "Print completions for bash, zsh or fish"),
)
"""Each with what follows it, and one line about it."""

NAMES = tuple(name for name, _, _ in COMMANDS)

CHECK_FLAGS = (
    ("--changed", "Show only what is not the default"),
    ("--load", "Import the app too, and say why if that fails"),
    ("--json", "Print JSON"),
)
"""The flags that `check` has beside those of `serve`."""

FRONTS = ("haproxy", "nginx", "envoy", "traefik", "caddy", "k8s", "keda")
"""What `fleet` prints a file for."""
