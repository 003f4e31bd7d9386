"""The manifests for Kubernetes: they fit its published schemas, and say what the code and the other examples say."""

import subprocess
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from tests.support.kubernetes import KUBERNETES, MANIFESTS, manifest
from tools.docs.commands import check
from tools.docs.markdown import ROOT

FILES = sorted(path.name for path in MANIFESTS.glob("*.yaml"))


def pod_of(file: str, name: str) -> dict[str, Any]:
    pod: dict[str, Any] = manifest(file)["StatefulSet", name]["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("file", FILES)
def test_every_object_fits_the_published_schema(file: str) -> None:
    objects = manifest(file)
    assert len(objects) >= 5
    for each in objects.values():
        kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_a_field_that_does_not_exist_is_found_out() -> None:
    broker = manifest("broker.yaml")["StatefulSet", "ottla"]
    broker["spec"]["template"]["spec"]["terminationGracePeriod"] = 90
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
        kubernetes_validate.validate(broker, KUBERNETES, strict=True)


@pytest.mark.parametrize(
    ("file", "name", "unit"), [("broker.yaml", "ottla", "ottla.service"), ("job.yaml", "sales", "ottla-job@.service")]
)
def test_a_pod_gets_the_time_to_stop_that_a_service_gets(file: str, name: str, unit: str) -> None:
    service = ConfigParser(interpolation=None)
    service.read(ROOT / "deploy" / unit)
    assert pod_of(file, name)["terminationGracePeriodSeconds"] == int(service["Service"]["TimeoutStopSec"])


@pytest.mark.parametrize(("file", "name"), [("broker.yaml", "ottla"), ("job.yaml", "sales")])
def test_containers_are_those_of_the_image_and_without_privileges(file: str, name: str) -> None:
    pod = pod_of(file, name)
    assert "useradd --system --uid 9092" in (ROOT / "Containerfile").read_text(encoding="utf-8")
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) == (9092, True)
    (container,) = pod["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounted = {each["name"] for each in container["volumeMounts"]}
    claims = manifest(file)["StatefulSet", name]["spec"].get("volumeClaimTemplates", [])
    assert mounted == {each["name"] for each in pod["volumes"]} | {each["metadata"]["name"] for each in claims}


def test_commands_exist() -> None:
    (broker,), (driver,) = pod_of("broker.yaml", "ottla")["containers"], pod_of("job.yaml", "sales")["containers"]
    assert check(broker["args"][0].removeprefix("exec ").replace("$((${POD##*-} + 1))", "1")) == 1
    assert check(" ".join(broker["readinessProbe"]["exec"]["command"])) == 1
    assert check(" ".join([*driver["command"], *(word.partition("=")[0] for word in driver["args"])])) == 1


@pytest.mark.parametrize(("pod", "node"), [("ottla-0", 1), ("ottla-11", 12)])
def test_a_broker_takes_its_id_and_its_name_from_its_pod(pod: str, node: int, tmp_path: Path) -> None:
    (broker,) = pod_of("broker.yaml", "ottla")["containers"]
    (tmp_path / "ottla").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "ottla").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "POD": pod, "NAMESPACE": "shop"}
    done = subprocess.run(
        [*broker["command"], *broker["args"]], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        "serve",
        "/etc/ottla/server.properties",
        "--override",
        f"node.id={node}",
        "--override",
        f"advertised.listeners=PLAINTEXT://{pod}.ottla.shop.svc:9092",
    ]


def test_an_executor_gets_all_that_spark_asks_for(tmp_path: Path) -> None:
    (tmp_path / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "python3").write_text("#!/bin/sh\necho /site-packages/pyspark/jars\n")
    for program in ("java", "python3"):
        (tmp_path / program).chmod(0o755)
    names = ("DRIVER_URL", "EXECUTOR_ID", "EXECUTOR_CORES", "EXECUTOR_MEMORY", "APPLICATION_ID", "EXECUTOR_POD_IP")
    environment = {f"SPARK_{name}": name for name in (*names, "RESOURCE_PROFILE_ID", "EXECUTOR_POD_NAME")}
    options = {f"SPARK_JAVA_OPT_{number}": f"-Doption={number} and * more" for number in (10, 2, 1)}
    given = {"PATH": f"{tmp_path}:/usr/bin:/bin", **environment, **options}
    done = subprocess.run(
        [MANIFESTS / "spark-executor", "executor"], env=given, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[:3] == [f"-Doption={number} and * more" for number in (1, 2, 10)]
    assert lines[3:7] == [
        "-XmsEXECUTOR_MEMORY",
        "-XmxEXECUTOR_MEMORY",
        "-cp",
        "/site-packages/pyspark/jars/*:/opt/spark/conf:",
    ]
    assert dict(zip(lines[8::2], lines[9::2], strict=True)) == {
        "--driver-url": "DRIVER_URL",
        "--executor-id": "EXECUTOR_ID",
        "--cores": "EXECUTOR_CORES",
        "--app-id": "APPLICATION_ID",
        "--hostname": "EXECUTOR_POD_IP",
        "--resourceProfileId": "RESOURCE_PROFILE_ID",
        "--podName": "EXECUTOR_POD_NAME",
    }
