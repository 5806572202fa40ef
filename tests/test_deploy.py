"""The examples in deploy/ start nodes: the systemd unit's command line and the Kubernetes
manifest."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from cluster import PORTS, free_block
from data import people, write
from harness import BINARY, WAIT_S, Failed, Store, wait_for
from secured import Secured

DEPLOY = Path(__file__).parent.parent / "deploy"
HTTP_PORT = 7380
POD_IP = "10.1.2.3"


class Started:
    """A process with an empty environment, and with free ports in the place of its own."""

    def __init__(self, words, environment, log, first):
        self.log, self.first = log, first
        numbers = ("7379", "7391", "7390", "7380")
        self.ports = {number: first + i for i, number in enumerate(numbers)}
        words = [self.moved(word) for word in words]
        environment = {"PATH": os.environ["PATH"], **environment}
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def moved(self, word):
        """A word of the command line with replaced ports."""
        if word == "7400-7403":
            return f"{self.first + 4}-{self.first + PORTS - 1}"
        address = re.fullmatch(r"(.*:)(\d+)", word)
        return address[1] + str(self.ports[address[2]]) if address else word

    def url(self, path):
        return f"https://127.0.0.1:{self.ports[str(HTTP_PORT)]}{path}"

    def stop(self, seconds):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(self.log.read_text()) from None

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path):
    """Starts a process: start(words, environment)."""
    running, guards = [], []

    def begin(words, environment, name="node"):
        first, guard = free_block()
        guards.append(guard)
        log = tmp_path / f"{name}.log"
        running.append(Started(words, environment, log, first))
        return running[-1]

    yield begin
    for one in running:
        one.kill()
    for guard in guards:
        guard.close()


@pytest.fixture
def secured(tmp_path):
    return Secured(tmp_path)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def is_ready(secured, node, host=None):
    assert node.process.poll() is None, node.log.read_text()
    return secured.ask(node.url("/ready"), host=host)[0] == 200


def unit():
    """The settings of the unit, with continued lines joined."""
    text = (DEPLOY / "forebay.service").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and line[0] not in "#["]
    return dict(line.split("=", 1) for line in lines)


def environment_file():
    lines = (DEPLOY / "forebay.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_units_command_line_starts_a_node(store, secured, start, tmp_path):
    settings, given = unit(), environment_file()
    store.run("cluster", "create")
    given |= {"ADDRESS": "127.0.0.1", "FOREBAY_STORE": str(store.path)}
    line = re.sub(r"\$\{(\w+)\}", lambda found: given[found[1]], settings["ExecStart"])
    for name, path in {
        "/usr/local/bin/forebay": BINARY,
        "/var/lib/forebay": tmp_path / "cache",
        "/etc/forebay/cert.pem": secured.certificate,
        "/etc/forebay/key.pem": secured.key,
        "/etc/forebay/users.json": secured.users,
    }.items():
        assert name in line
        line = line.replace(name, str(path))
    node = start(shlex.split(line), given)
    wait_for(lambda: is_ready(secured, node), lambda: node.log.read_text())
    assert store.json("cluster", "status")["nodes"][0]["name"] == given["NODE"]
    store.push("people", write(people(100), tmp_path / "people.parquet"))

    def days_left():
        page = secured.page(node.url("/metrics"))
        remaining_s = re.search(r"^forebay_certificate_remaining_seconds (\S+)$", page, re.M)[1]
        return float(remaining_s) / 86400

    assert 29.9 < days_left() <= 30
    page = secured.page(node.url("/metrics"))
    assert 'forebay_cluster_table_version{table="people"} 1\n' in page
    # A user without access to the table does not see it.
    assert 'table="people"' not in secured.page(node.url("/metrics"), user="blind")
    # ExecReload loads a new certificate for new connections.
    secured.make(days=60)
    node.process.send_signal(signal.SIGHUP)
    wait_for(
        lambda: secured.ask(node.url("/health"))[0] == 200 and 59.9 < days_left() <= 60,
        "the new certificate",
    )
    begun = time.monotonic()
    assert node.stop(int(settings["TimeoutStopSec"])) == 0
    assert time.monotonic() - begun < int(settings["TimeoutStopSec"])
    assert store.json("cluster", "status")["nodes"][0]["state"] == "left"


def manifest(kind):
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    found = [document for document in documents if document["kind"] == kind]
    assert len(found) == 1
    return found[0]


def container(kind):
    (one,) = manifest(kind)["spec"]["template"]["spec"]["containers"]
    return one


def pod_words(name, zone, secured, tmp_path):
    """The command and environment of a pod's container, as Kubernetes would set them."""
    one = container("StatefulSet")
    fields = {
        "metadata.name": name,
        "status.podIP": POD_IP,
        "metadata.labels['topology.kubernetes.io/zone']": zone,
    }
    given = {}
    for entry in one["env"]:
        source = entry.get("valueFrom")
        text = fields[source["fieldRef"]["fieldPath"]] if source else entry["value"]
        given[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], text)
    headless = next(
        document["metadata"]
        for document in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
        if document["kind"] == "Service" and document["spec"].get("clusterIP") == "None"
    )
    service, namespace = headless["name"], headless["namespace"]
    assert given["HOST"] == f"{name}.{service}.{namespace}.svc.cluster.local"
    # That name does not exist on this machine.
    given["HOST"] = "localhost"
    args = [re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], arg) for arg in one["args"]]
    paths = {
        "/var/lib/forebay/cache": tmp_path / f"cache-{name}",
        "/etc/forebay/tls.crt": secured.certificate,
        "/etc/forebay/tls.key": secured.key,
        "/etc/forebay/users.json": secured.users,
    }
    for path, local in paths.items():
        assert any(path in arg for arg in args), path
        args = [arg.replace(path, str(local)) for arg in args]
    return [BINARY, *args], given


def test_the_manifests_pods_form_a_cluster(store, secured, start, tmp_path):
    store.run(*container("Job")["args"])
    given = {"FOREBAY_STORE": str(store.path)}
    pods = []
    for i in range(manifest("StatefulSet")["spec"]["replicas"]):
        words, environment = pod_words(f"forebay-{i}", f"eu-{i}", secured, tmp_path)
        pods.append(start(words, {**environment, **given}, f"forebay-{i}"))
    one = container("StatefulSet")
    ports = {port["name"]: port["containerPort"] for port in one["ports"]}
    # Like kubelet: by the pod's address, without a check of the certificate's name.
    host = f"{POD_IP}:{HTTP_PORT}"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = one[probe]["httpGet"]
        assert asked["scheme"] == "HTTPS" and ports[asked["port"]] == HTTP_PORT
        for pod in pods:
            wait_for(
                lambda: secured.ask(pod.url(asked["path"]), host=host)[0] == 200,  # noqa: B023
                lambda: pod.log.read_text(),  # noqa: B023,
            )

    def nodes():
        return store.json("cluster", "status", *secured.asks())["nodes"]

    def states():
        return [node["state"] for node in nodes()]

    wait_for(lambda: states() == ["up"] * 3, lambda: f"states: {states()}")
    assert [(node["name"], node["zone"]) for node in nodes()] == [
        (f"forebay-{i}", f"eu-{i}") for i in range(3)
    ]
    at = {f"localhost:{pod.ports['7379']}" for pod in pods}
    assert {node["listen"] for node in nodes()} == at
    source = write(people(300), tmp_path / "people.parquet")
    pushed = store.push("people", source, args=["--replicas", "1", "--partitions", "6"])
    assert pushed["rollout"]["excluded"] == []
    for pod in pods:
        row = secured.ask(pod.url("/v1/tables/people/rows/7"), "seer")
        assert row[0] in (200, 421), row
        page = secured.page(pod.url("/metrics"))
        assert 'forebay_cluster_node_states{state="up"} 3\n' in page
    # A second run of the Job fails and changes nothing.
    store.refuse(*container("Job")["args"])
    grace = manifest("StatefulSet")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    sleeps = int(one["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pods[0].stop(grace - sleeps) == 0
    wait_for(lambda: states().count("left") == 1, lambda: f"states: {states()}")


def test_a_pod_without_a_zone_does_not_start(store, secured, start, tmp_path):
    store.run(*container("Job")["args"])
    words, environment = pod_words("forebay-0", "", secured, tmp_path)
    pod = start(words, {**environment, "FOREBAY_STORE": str(store.path)})
    assert pod.process.wait(WAIT_S) == 2
    assert "zone" in pod.log.read_text()


def test_the_manifest_and_the_image_use_the_same_user():
    user = re.search(r"^USER (\d+):(\d+)$", (DEPLOY / "Containerfile").read_text(), re.M)
    for kind in ("Job", "StatefulSet"):
        template = manifest(kind)["spec"]["template"]["spec"]
        contexts = [template.get("securityContext", {}), container(kind)["securityContext"]]
        merged = {**contexts[0], **contexts[1]}
        assert (merged["runAsUser"], merged["runAsNonRoot"]) == (int(user[1]), True)
        assert merged.get("runAsGroup", int(user[2])) == int(user[2])
