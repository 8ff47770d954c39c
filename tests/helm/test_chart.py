"""The chart, linted and rendered by Helm itself; its configuration read by the router itself."""

import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import yaml

from indexer.source_failures import Failed
from prompt import bundled_model_dir
from router.config import load_config
from router.metrics import RouterCollector
from scripts.reference.empty_router import empty_router
from tests import needs

CHART = Path(__file__).parents[2] / "helm" / "kvroute"

Manifests = dict[str, dict[str, Any]]


def render(values: dict[str, Any] | None = None) -> Manifests:
    """Every rendered object, by ``Kind/name``.

    Raises whatever Helm raises.
    """
    helm = needs.module("helm_python", extra="test")
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values or {})
        files = cast("dict[str, str]", chart.render(values or {}, name="llm", namespace="serving"))
    documents = [
        document
        for name, text in files.items()
        if name.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in documents}


def container(manifests: Manifests) -> dict[str, Any]:
    pod = manifests["Deployment/llm-kvroute"]["spec"]["template"]["spec"]
    (found,) = pod["containers"]
    return cast("dict[str, Any]", found)


def configuration(manifests: Manifests) -> str:
    return cast("str", manifests["ConfigMap/llm-kvroute"]["data"]["kvroute.yaml"])


def test_helm_finds_no_fault() -> None:
    helm = needs.module("helm_python", extra="test")
    report = helm.lint(str(CHART), strict=True)
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []


def test_default_objects() -> None:
    manifests = render()
    assert set(manifests) == {
        "ConfigMap/llm-kvroute",
        "Deployment/llm-kvroute",
        "Service/llm-kvroute",
    }
    selector = manifests["Service/llm-kvroute"]["spec"]["selector"]
    deployment = manifests["Deployment/llm-kvroute"]["spec"]
    assert selector == deployment["selector"]["matchLabels"]
    assert selector.items() <= deployment["template"]["metadata"]["labels"].items()


def test_probes_ask_the_data_port() -> None:
    router = container(render({"ports": {"data": 9000, "control": 9001}}))
    assert router["ports"] == [{"name": "http", "containerPort": 9000}]
    paths = {name: router[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness")}
    assert paths == {
        "liveness": {"path": "/health", "port": "http", "scheme": "HTTP"},
        "readiness": {"path": "/ready", "port": "http", "scheme": "HTTP"},
    }


def test_a_changed_configuration_rolls_the_pods() -> None:
    def checksum(values: dict[str, Any]) -> str:
        template = render(values)["Deployment/llm-kvroute"]["spec"]["template"]
        return cast("str", template["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) != checksum({"config": {"policy": "round_robin"}})


def test_an_exposed_control_port_takes_its_token_from_a_secret() -> None:
    manifests = render({"control": {"expose": True, "tokenSecret": "kvroute-token"}})
    assert "Service/llm-kvroute-control" in manifests
    (variable,) = container(manifests)["env"]
    assert variable["name"] == "KVROUTE_CONTROL_TOKEN"
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "kvroute-token", "key": "token"}
    assert yaml.safe_load(configuration(manifests))["control_host"] == "0.0.0.0"


def test_the_workers_token_comes_from_a_secret() -> None:
    (variable,) = container(render({"workerTokenSecret": "engines"}))["env"]
    assert variable["name"] == "KVROUTE_WORKER_TOKEN"
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "engines", "key": "token"}


EXPOSED = {"expose": True, "tokenSecret": "kvroute-token"}


def test_probes_speak_tls_where_the_port_does() -> None:
    for config, scheme in (({}, "HTTP"), ({"tls": {"cert_file": "/tls/tls.crt"}}, "HTTPS")):
        router = container(render({"config": config}))
        probes = [
            router[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")
        ]
        assert [probe["scheme"] for probe in probes] == [scheme] * 3


def test_metrics_have_a_port_of_their_own_where_it_is_wanted() -> None:
    manifests = render({"metrics": {"expose": True, "port": 9100}, "alerts": {"enabled": True}})
    assert {"name": "metrics", "containerPort": 9100} in container(manifests)["ports"]
    service = manifests["Service/llm-kvroute-metrics"]["spec"]
    assert service["ports"] == [{"name": "metrics", "port": 9100, "targetPort": "metrics"}]
    stated = yaml.safe_load(configuration(manifests))
    assert (stated["metrics_host"], stated["metrics_port"]) == ("0.0.0.0", 9100)
    (group,) = manifests["PrometheusRule/llm-kvroute"]["spec"]["groups"]
    assert 'service="llm-kvroute-metrics"' in group["rules"][0]["expr"]


def test_keys_of_clients_come_from_a_secret() -> None:
    manifests = render({"keysSecret": "tenants"})
    path = Path(yaml.safe_load(configuration(manifests))["keys_file"])
    pod = manifests["Deployment/llm-kvroute"]["spec"]["template"]["spec"]
    (volume,) = [one for one in pod["volumes"] if one["name"] == "keys"]
    assert volume["secret"] == {
        "secretName": "tenants",
        "items": [{"key": "keys", "path": path.name}],
    }
    (mount,) = [one for one in container(manifests)["volumeMounts"] if one["name"] == "keys"]
    assert mount == {"name": "keys", "mountPath": str(path.parent), "readOnly": True}
    assert "keys_file" not in configuration(render())


def test_alerts_speak_of_metrics_and_labels_that_there_are() -> None:
    values = {"control": EXPOSED, "alerts": {"enabled": True, "labels": {"release": "prom"}}}
    rule = render(values)["PrometheusRule/llm-kvroute"]
    assert rule["metadata"]["labels"]["release"] == "prom"
    (group,) = rule["spec"]["groups"]
    assert {one["alert"] for one in group["rules"]} >= {
        "KvrouteFinding", "KvrouteSourceFailed", "KvrouteIndexFailed", "KvrouteNoWorkerServes"
    }  # fmt: skip
    (failed,) = [one for one in group["rules"] if one["alert"] == "KvrouteSourceFailed"]
    assert all(re.fullmatch("failed_.*", kind) for kind in Failed)
    assert 'kind=~"failed_.*"' in failed["expr"]
    labels = {
        family.name: getattr(family, "_labelnames", ())
        for family in RouterCollector(empty_router()).collect()
    }
    scraped = {"namespace", "service"}
    for one in group["rules"]:
        for name, selector in re.findall(r"(kvroute_\w+)\{(.*?)\}", one["expr"]):
            used = set(re.findall(r"(\w+)=", selector))
            assert scraped <= used, one["expr"]
            assert used - scraped <= set(labels[name.removesuffix("_total")]), one["expr"]
        shown = re.findall(r"\$labels\.(\w+)", one["annotations"]["summary"])
        assert set(shown) <= {label for names in labels.values() for label in names}


def test_engines_that_connect_have_ports_and_a_service() -> None:
    values = {"events": {"ports": [5557, 5558]}, "config": {"events": {"listen": "tcp://*:5557"}}}
    manifests = render(values)
    service = manifests["Service/llm-kvroute-events"]["spec"]
    assert service["publishNotReadyAddresses"] is True
    assert service["selector"] == manifests["Service/llm-kvroute"]["spec"]["selector"]
    assert [one["port"] for one in service["ports"]] == [5557, 5558]
    assert container(manifests)["ports"][1:] == [
        {"name": "events-5557", "containerPort": 5557},
        {"name": "events-5558", "containerPort": 5558},
    ]


def test_no_service_leaves_variables_for_the_router() -> None:
    pod = render()["Deployment/llm-kvroute"]["spec"]["template"]["spec"]
    assert pod["enableServiceLinks"] is False


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"control": {"expose": True}}, "tokenSecret"),
        ({"replicaCount": "two"}, "replicaCount"),
        ({"ports": {"data": 0, "control": 8081}}, "data"),
        ({"config": {"port": 9000}}, "port"),
        ({"config": {"control_token": "in the open"}}, "control_token"),
        ({"config": {"worker_token": "in the open"}}, "worker_token"),
        ({"workerToken": "in the open"}, "workerToken"),
        ({"imagee": {}}, "imagee"),
        ({"alerts": {"enabled": True}}, "metrics.expose or control.expose"),
        ({"config": {"metrics_port": 1}}, "metrics_port"),
        ({"alerts": {"for": "soon"}}, "for"),
        ({"events": {"ports": [5557]}, "replicaCount": 2}, "replicaCount 1"),
        ({"events": {"ports": ["x"]}}, "ports"),
        ({"config": {"events": {"listen": "tcp://*:5557"}}}, "events.ports"),
    ],
)
def test_bad_values_are_refused_by_name(values: dict[str, Any], word: str) -> None:
    helm = needs.module("helm_python", extra="test")
    with pytest.raises(helm.HelmError, match=word):
        render(values)


CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {
        "workers": ["http://sglang-0:30000", {"url": "http://vllm-0:8000", "name": "v0"}],
        "policy": "round_robin",
        "limits": {"max_body_bytes": 1_000_000},
        "tokenizers": {"tiny": str(bundled_model_dir())},
        "ready": {"min_workers": 2},
    },
]


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=["default", "many fields"])
def test_the_router_accepts_the_rendered_configuration(
    config: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "kvroute.yaml"
    file.write_text(configuration(render({"config": config})))
    loaded = load_config(file, {})
    assert (loaded.host, loaded.port) == ("0.0.0.0", 8080)
    assert len(loaded.workers) == len(config.get("workers", []))


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.mark.e2e
def test_the_container_command_serves_and_drains(tmp_path: Path) -> None:
    data, control = free_ports(2)
    config = {"drain": {"window_s": 0, "finish_s": 1}, "workers": ["http://127.0.0.1:9"]}
    manifests = render({"ports": {"data": data, "control": control}, "config": config})
    file = tmp_path / "kvroute.yaml"
    file.write_text(configuration(manifests))
    args = [
        str(file) if argument == "/etc/kvroute/kvroute.yaml" else argument
        for argument in container(manifests)["args"]
    ]
    router = subprocess.Popen([sys.executable, "-m", "kvroute", *args])
    try:
        assert wait_for(f"http://127.0.0.1:{data}/health") == 200
        ready = httpx.get(f"http://127.0.0.1:{data}/ready")
        assert ready.status_code == 503
        router.terminate()
        assert router.wait(timeout=20) == 0
    finally:
        router.kill()
        router.wait()


def wait_for(url: str, deadline_s: float = 30) -> int:
    """Status of the first answer; 0 where there is none by the deadline."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        try:
            return httpx.get(url).status_code
        except httpx.TransportError:
            time.sleep(0.05)
    return 0


@pytest.mark.e2e
def test_an_unknown_field_of_the_configuration_ends_the_router(tmp_path: Path) -> None:
    file = tmp_path / "kvroute.yaml"
    file.write_text(configuration(render({"config": {"limits": {"max_bodies": 1}}})))
    command = [sys.executable, "-m", "kvroute", "serve", "--config", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "limits.max_bodies" in ended.stderr
