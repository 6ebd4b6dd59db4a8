"""The manifests of clusters: whole by their schemas, of one Ray version with the lock, and with all that their pools ask for.

`ray up` files are held to Ray's own schema and checks. The schema of RayCluster (a CRD of KubeRay) comes in no package: the one below is
made by hand, strict, of the fields that are used here, after the CRD of KubeRay 1.5 and Kubernetes' Pod.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cluster.pools import placement
from cluster.pools.pool import Pool, load_pools

ROOT = Path(__file__).parents[3]
CLUSTER = ROOT / "cluster"
RAY = re.search(r"^ray(?:\[.*\])?==(\S+)(?: \\)?$", (ROOT / "requirements.lock").read_text(), re.M)
TEXT = {"type": "string", "minLength": 1}
QUANTITY = {"type": ["string", "integer"], "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"}
NAME = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}


def closed(required: str = "", **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required.split(), "properties": properties}


def many(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


def mapping(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": value}


CONTAINER = closed(
    "name image resources",
    name=NAME,
    image=TEXT,
    ports=many(closed("containerPort name", containerPort={"type": "integer", "maximum": 65535}, name=NAME)),
    env=many(closed("name value", name=TEXT, value={"type": "string"})),
    envFrom=many(closed("secretRef", secretRef=closed("name", name=NAME, optional={"type": "boolean"}))),
    securityContext=closed(capabilities=closed(add=many(TEXT))),
    resources=closed("requests limits", requests=mapping(QUANTITY), limits=mapping(QUANTITY)),
    volumeMounts=many(closed("name mountPath", name=NAME, mountPath={"type": "string", "pattern": "^/"})),
)
POD = closed(
    "spec",
    spec=closed(
        "containers",
        automountServiceAccountToken={"type": "boolean"},
        hostIPC={"type": "boolean"},
        terminationGracePeriodSeconds={"type": "integer"},
        nodeSelector=mapping(TEXT),
        tolerations=many(
            closed("operator", key=TEXT, operator={"enum": ["Exists", "Equal"]}, effect={"enum": ["NoSchedule", "NoExecute"]})
        ),
        containers={**many(CONTAINER), "maxItems": 1},
        volumes=many(closed("name emptyDir", name=NAME, emptyDir=closed(medium={"enum": ["Memory"]}, sizeLimit=QUANTITY))),
    ),
)
RAY_START = mapping({"type": "string"})  # KubeRay takes text only, also for numbers
COUNT = {"type": "integer", "minimum": 0}
RAY_CLUSTER = closed(
    "apiVersion kind metadata spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayCluster"},
    metadata=closed("name", name=NAME, labels=mapping(TEXT)),
    spec=closed(
        "rayVersion authOptions headGroupSpec workerGroupSpecs",
        rayVersion=TEXT,
        authOptions=closed("mode", mode={"const": "token"}),
        headGroupSpec=closed("rayStartParams template", serviceType={"const": "ClusterIP"}, rayStartParams=RAY_START, template=POD),
        workerGroupSpecs=many(
            closed(
                "groupName replicas minReplicas maxReplicas rayStartParams template",
                groupName=NAME,
                replicas=COUNT,
                minReplicas=COUNT,
                maxReplicas=COUNT,
                rayStartParams=RAY_START,
                template=POD,
            )
        ),
    ),
)


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CLUSTER / name).read_text())
    return found


@pytest.mark.parametrize("pool", ["gaudi2", "a100"])
def test_a_ray_cluster_for_a_pool(pool: str) -> None:
    found = manifest(f"kuberay/{pool}.yaml")
    jsonschema.validate(found, RAY_CLUSTER)
    assert RAY is not None and found["spec"]["rayVersion"] == RAY[1]
    assert found["metadata"]["labels"]["sweepbench/pool"] == pool
    (group,) = found["spec"]["workerGroupSpecs"]
    (worker,), (head,) = group["template"]["spec"]["containers"], found["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert worker["image"] == head["image"]  # one Python and one Ray for the cluster
    assert worker["resources"]["requests"] == worker["resources"]["limits"]  # guaranteed: nobody takes its cores
    mounted = {mount["name"] for mount in worker["volumeMounts"]}
    assert mounted == {volume["name"] for volume in group["template"]["spec"]["volumes"]}
    described = load_pools()[pool]
    assert group["replicas"] == described.nodes
    takes(described, of_a_pod(worker["resources"]["limits"], group["rayStartParams"]))


def of_a_pod(limits: dict[str, Any], start: dict[str, str]) -> dict[str, float]:
    """What Ray counts on a node: KubeRay gives it CPUs and nvidia.com/gpu, the rest is said in rayStartParams."""
    said = json.loads(json.loads(start["resources"])) if start["resources"].startswith('"') else json.loads(start["resources"])
    return {"CPU": float(limits["cpu"]), "GPU": float(limits.get("nvidia.com/gpu", 0)), **said}


def takes(pool: Pool, node: dict[str, float]) -> None:
    """A trial over all of a node's devices fits on it, and no second one."""
    whole = placement.place(pool, {"devices": pool.accelerators_per_node, "threads": 8})
    assert placement.room(whole, node) == pool.accelerators_per_node, (placement.needs(whole), node)
    one = placement.place(pool, {"devices": 1, "threads": 8})
    assert placement.room(one, node) == 1


def test_gaudi_nodes_have_what_gaudi_needs() -> None:
    spec = manifest("kuberay/gaudi2.yaml")["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    (worker,) = spec["containers"]
    assert spec["hostIPC"] is True
    assert worker["securityContext"]["capabilities"]["add"] == ["SYS_NICE"]
    assert (worker["resources"]["limits"]["habana.ai/gaudi"], worker["resources"]["limits"]["hugepages-2Mi"]) == (8, "9500Mi")


def test_a_misspelt_manifest_is_found() -> None:
    found = manifest("kuberay/a100.yaml")
    found["spec"]["workerGroupSpecs"][0]["rayStartParam"] = {}
    with pytest.raises(jsonschema.ValidationError, match="rayStartParam"):
        jsonschema.validate(found, RAY_CLUSTER)


def test_the_rented_cluster() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    found = manifest("ray-up-a100.yaml")
    validate_config(prepare_config(manifest("ray-up-a100.yaml")))  # as `ray up` does: ray-schema.json, and what a schema cannot say
    assert found["head_node_type"] in found["available_node_types"]
    node = found["available_node_types"]["a100"]
    takes(load_pools()["a100"], {name: float(amount) for name, amount in node["resources"].items()})
    assert found["provider"]["use_internal_ips"] is True
    assert "RAY_AUTH_MODE=token" in found["initialization_commands"][0]
    assert "echo RAY_AUTH_TOKEN=ey" not in (CLUSTER / "ray-up-a100.yaml").read_text()
    assert any("sweepbench.env" in option for option in found["docker"]["run_options"])


@pytest.mark.parametrize("pool", ["gaudi2", "a100"])
def test_an_image_for_a_pool(pool: str) -> None:
    lines = (CLUSTER / "images" / f"{pool}.Containerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert steps[0][0] == "FROM" and {step[0] for step in steps} <= {"FROM", "RUN", "ENV", "USER", "WORKDIR"}  # no COPY: the code travels
    assert ":" in steps[0][1]  # a version
    text = "\n".join(" ".join(step) for step in steps)
    assert RAY is not None and f'"ray[default,train]=={RAY[1]}"' in text
    tag = (CLUSTER / "images" / f"{pool}.Containerfile").read_text().split("podman build -t ")[1].split()[0]
    assert f"image: {tag}" in (CLUSTER / "kuberay" / f"{pool}.yaml").read_text()
