"""`stanchion fleet`: what the files of fronts say of the settings in force, and which settings it warns of."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from stanchion import command_line, fleet
from stanchion.cli import main
from stanchion.commands import FRONTS
from stanchion.effective import Effective
from stanchion.fleet import facts, misfits, pod, template
from stanchion.fleet.facts import Asked, Host
from support.patience import PATIENCE_S
from support.proxies import program

FILES = Path(fleet.__file__).parent / "fronts"

HOSTS = ("--hosts", "10.0.0.1:8000,app2:8001,[fd00::3]:8000")
# With these no front has a reason to complain but for --agent.
WELL = (
    *("--bind", "0.0.0.0:8000", "--admin", "0.0.0.0:8299", "--forwarded-allow-ips", "10.0.0.9", "--keep-alive", "75"),
    *("--drain-delay", "5", "--interface", "wsgi"),
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Where no config file is, and no variable is set."""
    monkeypatch.chdir(tmp_path)
    for name in ("PORT", "WEB_CONCURRENCY", "FORWARDED_ALLOW_IPS", "GUNICORN_CMD_ARGS", "STANCHION_CMD_ARGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def told(capsys):
    """The command's file and its warnings."""

    def run(*arguments: str) -> tuple[str, list[str]]:
        assert main(["fleet", *arguments]) == 0
        out, err = capsys.readouterr()
        return out, [one.removeprefix("stanchion: warning: ") for one in err.splitlines()]

    return run


@pytest.mark.parametrize("words", [[], ["-h"], ["haproxy", "--help"]])
def test_help_is_short(words, told):
    lines = told(*words)[0].splitlines()
    assert max(map(len, lines)) <= 79
    assert len(lines) <= 30
    assert {line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "} >= set(FRONTS)


@pytest.mark.parametrize("front", FRONTS)
def test_a_file_begins_with_its_command_and_has_no_hole(front, told):
    text, warnings = told(front, *HOSTS, *WELL, "shop:app")
    assert re.match(rf"# stanchion fleet {front} --hosts .* \(stanchion [\d.]+\)\n#\n", text)
    assert "cannot see:\n" in text
    assert "{{" not in text
    assert max(len(line) for line in text.splitlines()[1:]) <= 150
    assert warnings == [one for one in warnings if "--agent" in one]


@pytest.mark.parametrize(
    ("front", "servers"),
    [
        ("haproxy", r"server app1 10\.0\.0\.1:8000\n +server app2 app2:8001\n +server app3 \[fd00::3\]:8000"),
        ("nginx", r"server 10\.0\.0\.1:8000 max_fails.*\n +server app2:8001 .*\n +server \[fd00::3\]:8000 "),
        ("caddy", r"reverse_proxy 10\.0\.0\.1:8000 app2:8001 \[fd00::3\]:8000 \{"),
        ("traefik", r"url: http://10\.0\.0\.1:8000\n.*http://app2:8001\n.*http://\[fd00::3\]:8000"),
        (
            "envoy",
            r'"10\.0\.0\.1", port_value: 8000 (?s:.*)"app2", port_value: 8001 (?s:.*)"fd00::3", port_value: 8000 ',
        ),
    ],
)
def test_each_server_is_there(front, servers, told):
    assert re.search(servers, told(front, *HOSTS, *WELL)[0])


@pytest.mark.parametrize(
    ("settings", "wait_s", "keeps_s"),
    [
        (("--queue-timeout", "60", "--timeout", "30", "--keep-alive", "75"), 91, 60),
        (("--queue-timeout", "0.5", "--timeout", "1.2", "--keep-alive", "20"), 3, 16),
        (("--timeout", "0", "--keep-alive", "0"), 86_400, 1),
    ],
)
def test_the_server_gives_up_first_and_the_front_closes_first(settings, wait_s, keeps_s, told):
    for front, waits, keeps in (
        ("haproxy", r"timeout server (\d+)s", None),
        ("nginx", r"proxy_read_timeout (\d+)s", r"keepalive_timeout (\d+)s"),
        ("caddy", r"response_header_timeout (\d+)s", r"keepalive (\d+)s"),
        ("traefik", r"responseHeaderTimeout: (\d+)s", r"idleConnTimeout: (\d+)s"),
        ("envoy", r"stream_idle_timeout: (\d+)s", r" idle_timeout: (\d+)s\n +explicit_http_config"),
    ):
        text = told(front, *HOSTS, *settings)[0]
        assert re.findall(waits, text) == [str(wait_s)]
        assert keeps is None or re.findall(keeps, text) == [str(keeps_s)]


@pytest.mark.parametrize(
    ("settings", "seats"),
    [
        (("--workers", "3", "--threads", "4"), 12),
        (("--workers", "2", "--interface", "asgi"), 2000),
        (("--workers", "2", "--interface", "asgi", "--worker-concurrency", "50"), 100),
        (("--workers", "2", "--loop", "gevent", "--worker-concurrency", "7"), 14),
    ],
)
def test_maxconn_is_the_seats(settings, seats, told):
    assert f" maxconn {seats}\n" in told("haproxy", *HOSTS, *settings)[0]
    [trigger] = yaml.safe_load(told("keda", *settings)[0])["spec"]["triggers"]
    assert float(trigger["metadata"]["targetValue"]) == pytest.approx(0.7 * seats)


def test_probes_go_to_the_admin_listener_or_to_the_health_path(told):
    assert "uri /ready " in (text := told("haproxy", *HOSTS, *WELL)[0]) and "server port 8299" in text
    text = told("haproxy", *HOSTS, "--health-path", "/-")[0]
    assert "uri /-/ready " in text and "server port" not in text
    text = told("haproxy", *HOSTS)[0]
    assert "httpchk" not in text and " check inter " in text


OFTEN = ("--admin", "0.0.0.0:8299", "--keep-alive", "75", "--drain-delay", "5", "--interface", "wsgi")


@pytest.mark.parametrize(
    ("front", "arguments", "warning"),
    [
        ("haproxy", WELL, "the file has the server of these settings alone"),
        ("haproxy", (*HOSTS, *WELL), "no --agent with a TCP port"),
        ("haproxy", (*HOSTS, *WELL, "--admin", "unix:/run/a"), "no --admin with a TCP port"),
        ("caddy", (*HOSTS, *WELL[2:], "--bind", "127.0.0.1:8000"), "--bind is on loopback"),
        ("caddy", (*HOSTS, *WELL, "--admin", "localhost:8299"), "--admin is on loopback"),
        (
            "envoy",
            (*HOSTS, *WELL, "--forwarded-allow-ips", "127.0.0.1,unix"),
            "forwarded_allow_ips has only this machine",
        ),
        ("nginx", (*HOSTS, *WELL, "--keep-alive", "2"), "keepalive is 2 s: "),
        ("nginx", (*HOSTS, *WELL, "--timeout", "0"), "timeout is no limit"),
        ("nginx", (*HOSTS, *WELL, "--queue-timeout", "0"), "queue_timeout is no limit"),
        ("haproxy", (*HOSTS, *WELL, "--queue-timeout", "61"), "queue_timeout is over 60 s"),
        (
            "k8s",
            (*WELL, "shop:make(password='hunter2')"),
            "the arguments of the pod have a secret",
        ),
        ("traefik", (*HOSTS, *WELL, "--drain-delay", "0"), "drain_delay is 0"),
        ("traefik", (*HOSTS, *WELL, "--proxy-protocol", "v2"), "proxy_protocol is on"),
        ("traefik", (*HOSTS, *WELL, "--certfile", "a.pem"), "certfile is set"),
        ("traefik", (*HOSTS, *WELL, "--forwarded-header", "forwarded"), "forwarded_header is forwarded"),
        ("traefik", (*HOSTS, *WELL, "--ready-waiting-max", "9"), "ready_waiting_max and ready_wait_max take"),
        ("envoy", (*HOSTS, *WELL, "--interface", "auto"), "interface is auto"),
        ("keda", ("--interface", "wsgi"), "no --admin with a TCP port"),
        ("k8s", (*WELL, "--env", "A=b"), "no argument of a pod says raw_env"),
        (
            "k8s",
            (*WELL, "--certfile", "a.pem", "--keyfile", "a.key", "--access-logfile", "-", "--error-logfile", "/a.log"),
            "the image, or a volume, must have the files of certfile, keyfile, errorlog: ",
        ),
    ],
)
def test_what_does_not_fit_the_front_is_a_warning(front, arguments, warning, told):
    text, warnings = told(front, *arguments)
    assert text
    others = [one for one in warnings if not one.startswith(f"{front}: {warning}")]
    assert len(others) == len(warnings) - 1, warnings
    assert all("--agent" in one for one in others), others


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["apache"], "fleet: name a front first: one of haproxy, nginx"),
        (["nginx", "--hosts", "app1"], "expected HOST:PORT with commas between, got 'app1'"),
        (["nginx", "--hosts", "app1:0"], "expected HOST:PORT"),
        (["nginx", "--bind", "unix:/run/shop"], "name the servers, as in --hosts"),
        (["nginx", "--hosts", "app1:1", "--hots", "x"], "there is no flag --hots"),
        (["nginx", "--hosts", "a;include /x;b:80"], "expected HOST:PORT"),
        (["keda", "--namespace", "x\nspec: y"], "expected a name of lower-case letters, digits and hyphens"),
        (
            ["envoy", "--health-path", '/a"},x:{b', *HOSTS],
            "has characters that a front's file would take for its own",
        ),
    ],
)
def test_wrong_usage(arguments, reason, capsys):
    assert main(["fleet", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and reason in err


def test_no_secret_is_printed(told):
    for front in FRONTS:
        text, warnings = told(front, *HOSTS, "--env", "PLAIN=hunter2", "shop:app")
        assert "hunter2" not in text + " ".join(warnings)


GIVEN = (
    *("--workers", "3", "--threads", "2", "--queue-timeout", "20", "--no-preload", "--limit-request-body", "5M"),
    *("--lane", "api=/api priority=1", "--lane", "slow=/slow", "--drain-delay", "7", "--admin", "0.0.0.0:9999"),
)


def test_a_pod_has_the_settings_in_force(told, capsys):
    text, _ = told("k8s", "--bind", "0.0.0.0:8080", *GIVEN, "shop.wsgi:app")
    deployment, service, headless = yaml.safe_load_all(text)
    assert deployment["metadata"]["name"] == "shop"
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert changed(capsys, container["args"]) == changed(capsys, [*GIVEN, "--bind", "0.0.0.0:8080", "shop.wsgi:app"])
    assert pod["terminationGracePeriodSeconds"] == 7 + 30 + 5
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8080, "admin": 9999}
    assert {container[probe]["httpGet"]["port"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")} == {
        "admin"
    }
    assert headless["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == headless["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]


@pytest.mark.parametrize(("given", "delay_s"), [((), 5), (("--drain-delay", "0"), 0), (("--drain-delay", "7"), 7)])
def test_a_pod_goes_on_accepting_unless_the_settings_say_it_does_not(given, delay_s, told):
    deployment, _, _ = yaml.safe_load_all(told("k8s", *given, "shop:app")[0])
    pod = deployment["spec"]["template"]["spec"]
    args = pod["containers"][0]["args"]
    assert args[args.index("--drain-delay") + 1] == str(delay_s)
    assert pod["terminationGracePeriodSeconds"] == delay_s + 30 + 5


def changed(capsys, arguments: list[str]) -> dict[str, Any]:
    """The settings that `stanchion check` shows for these arguments."""
    assert main(["check", "--json", *arguments]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    return {name: entry["value"] for name, entry in shown.items()}


def test_keda_finds_the_pods_by_the_address(told):
    scaled = yaml.safe_load(told("keda", "--name", "shop", "--namespace", "prod", *WELL)[0])
    _, _, headless = yaml.safe_load_all(told("k8s", "--name", "shop", "--namespace", "prod", *WELL, "shop:app")[0])
    [trigger] = scaled["spec"]["triggers"]
    given = trigger["metadata"]
    # KEDA (metrics_api_scaler.go) takes from the address the service, the namespace and the port of the pods.
    address = urlsplit(given["url"])
    assert address.netloc.split(".")[:2] == [headless["metadata"]["name"], headless["metadata"]["namespace"]]
    assert address.port == headless["spec"]["ports"][0]["port"]
    assert (address.path, address.query) == ("/line", ""), "KEDA drops a query"
    # The default, average, would divide by the pods, and AverageValue again.
    assert (trigger["metricType"], given["aggregationType"]) == ("AverageValue", "sum")
    assert all(isinstance(value, str) for value in given.values()), "metadata is a map of texts"
    assert scaled["spec"]["minReplicaCount"] > 0


@pytest.mark.parametrize(
    ("front", "check", "lines"),
    [
        ("haproxy", ["-c", "-f"], ["default-server agent-check agent-port 8300 agent-inter 200ms"]),
        pytest.param(
            "envoy",
            ["--mode", "validate", "--disable-hot-restart", "-c"],
            ["client_side_weighted_round_robin.v3", "response_headers_to_remove: [endpoint-load-metrics]"],
            marks=pytest.mark.large,
        ),
    ],
)
def test_what_the_servers_tell_is_asked_for(front, check, lines, tmp_path):
    here = command_line.without_app(WELL)
    values = {**here.values, "agent": "0.0.0.0:8300", "load_report": "orca"}
    asked = Asked([], front, [Host("127.0.0.2", 8000)], "default")
    known = facts.gather(asked, Effective(values, here.origins, here.json))
    file = tmp_path / fleet.FILES[front]
    file.write_text(template.render((FILES / fleet.FILES[front]).read_text(), known))
    assert [line for line in lines if line not in file.read_text()] == []
    assert "agent" not in "".join(misfits.of(asked, Effective(values, here.origins, here.json)))
    if command := program(front):
        subprocess.run([command, *check, str(file)], check=True, capture_output=True, timeout=2 * PATIENCE_S)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a {{x}} b {{x}}\n", "a 1 b 1\n"),
        ("{{#yes}}\nin\n{{/yes}}\n{{^yes}}\nout\n{{/yes}}\n", "in\n"),
        ("{{#no}}\nin\n{{/no}}\n{{^no}}\nout\n{{/no}}\n", "out\n"),
        ("{{#each}}\n{{x}}{{y}}\n{{/each}}\n", "1a\n1b\n"),
        ("{{#yes}}\n{{#each}}\n{{y}}\n{{/each}}\n{{/yes}}\n", "a\nb\n"),
        ("{{#none}}\nin\n{{/none}}\n", ""),
        ("{{#holes}}\n{{y}}\n{{/holes}}\n", "{{x}}\n"),
    ],
)
def test_templates(text, written):
    facts = {"x": 1, "yes": "so", "no": None, "each": [{"y": "a"}, {"y": "b"}], "none": []}
    facts["holes"] = [{"y": "{{x}}"}]
    assert template.render(text, facts) == written


def test_a_fact_that_is_missing_is_an_error():
    with pytest.raises(KeyError):
        template.render("{{x}}", {})


def test_the_command_in_the_file_prints_the_file(told):
    text, _ = told("haproxy", *HOSTS, *WELL, "--name", "a b")
    command = shlex.split(text.splitlines()[0].removeprefix("# ").partition(" (stanchion")[0])
    assert command[:2] == ["stanchion", "fleet"]
    assert told(*command[2:])[0] == text


@pytest.mark.parametrize(
    ("app", "name"),
    [
        ("shop:app", "shop"),
        ("my_shop.wsgi:app", "my-shop"),
        ("123:app", "app-123"),
        ("null:app", "app-null"),
        ("", "app"),
    ],
)
def test_names_are_text_to_kubernetes_and_begin_with_a_letter(app, name):
    assert pod.name_of(app) == name


def test_each_front_has_its_file():
    assert list(fleet.FILES) == list(FRONTS)
