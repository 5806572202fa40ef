"""Fixtures: stores, servers, nodes and clusters."""

import signal
import subprocess

import pytest
import redis
from beside_redis import seeded_rng
from cluster import Cluster, Reading
from data import people, write
from disks import Disks
from fault_injection import Tables
from harness import Store, wait_for
from nodes import Node
from object_store import Proxy, RemoteStore, S3Server
from shared import SharedClusters, lossy_nodes, plain, show_logs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    item.has_failed = getattr(item, "has_failed", False) or report.failed
    return report


def has_failed(request):
    return getattr(request.node, "has_failed", False)


@pytest.fixture(autouse=True)
def end_readers():
    yield
    Reading.end_all()


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def source(tmp_path):
    """Makes a Parquet file of people: source(count, version)."""
    made = []

    def make(count=1000, version=1, start=0):
        made.append(None)
        return write(people(count, version, start), tmp_path / f"people-{len(made)}.parquet")

    return make


@pytest.fixture
def served(store, source):
    """A store with versions 1 and 2 of `people`, 2 serving, and a server on it."""
    store.push("people", source(version=1))
    store.push("people", source(version=2))
    with store.serve() as server:
        server.store = store
        yield server


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 6 MB."""
    disks = Disks(tmp_path, ["small"], 6)
    yield disks["small"]
    disks.end()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """One S3 server for all tests. A test that kills it starts it again."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.end()


@pytest.fixture
def remote(s3_server, tmp_path):
    """An empty store in the bucket, under a prefix of its own."""
    s3_server.ensure()
    return RemoteStore(s3_server, tmp_path / "machine", f"stores/{tmp_path.name}")


@pytest.fixture
def proxy(s3_server):
    s3_server.ensure()
    proxy = Proxy(s3_server)
    yield proxy
    proxy.stop()


@pytest.fixture
def live(store):
    """A server with a live table of each kind."""
    store.run("create", "kv")
    store.run("create", "log", "--order", "ordered", "--boundary", "m")
    store.run("create", "count", "--delta", "i64", "--durability", "os")
    store.run("create", "float", "--delta", "f64", "--durability", "os")
    store.run("create", "text", "--delta", "append", "--durability", "20ms")
    columns = ["--column", "name:text", "--column", "age:int64", "--column", "score:float64"]
    store.run("create", "people", "--value", "row", *columns)
    store.run("create", "list", "--value", "list", "--item", "int64")
    with store.serve() as server:
        server.store = store
        yield server


@pytest.fixture
def node(remote, tmp_path):
    """Starts nodes: node(*arguments, store=...)."""
    running = []

    def start(*args, store=None, cache="cache"):
        running.append(Node(store or remote, tmp_path / cache, *args))
        return running[-1]

    yield start
    for server in running:
        if server.alive():
            server.stop(signal.SIGKILL)


@pytest.fixture
def cluster(tmp_path, request):
    """Starts a cluster for one test: cluster(count, zones=3, args=(), store=..., create=())."""
    made = []

    def make(count=3, zones=3, args=(), store=None, create=(), **options):
        store = store or Store(tmp_path / "store")
        made.append(Cluster(store, tmp_path, count, zones, args, create, **options))
        return made[-1].start()

    yield make
    for one in made:
        one.end()
    for one in made:
        if has_failed(request):
            show_logs(one)
        one.check_logs()


@pytest.fixture(scope="session")
def shared_clusters(tmp_path_factory):
    clusters = SharedClusters(tmp_path_factory.mktemp)
    yield clusters
    clusters.end()


def lend_cluster(clusters, request):
    taken = []

    def take(count=3, zones=3, args=()):
        taken.append(clusters.take(plain, count, zones, tuple(map(str, args))))
        return taken[-1]

    yield take
    for made in taken:
        clusters.give_back(made, has_failed(request))


@pytest.fixture
def shared(shared_clusters, request):
    """A cluster that several tests use in turn: shared(count, zones=3, args=())."""
    yield from lend_cluster(shared_clusters, request)


@pytest.fixture(scope="module")
def shared_by_module(shared_clusters, request):
    """Like `shared`, for all tests of one file together."""
    yield from lend_cluster(shared_clusters, request)


@pytest.fixture
def lossy_cluster(shared_clusters, request):
    """A shared cluster over a lossy network, with a table `t`: lossy_cluster(count, args). It has a
    seed and a random generator from that seed."""
    taken = []

    def take(count=3, args=()):
        seed, rng = seeded_rng()
        made = shared_clusters.take(lossy_nodes, count, tuple(args))
        taken.append(made)
        made.begin(seed)
        made.seed, made.rng = seed, rng
        return made

    yield take
    for made in taken:
        shared_clusters.give_back(made, has_failed(request))


@pytest.fixture(scope="module")
def tables(s3_server, tmp_path_factory):
    """A cluster for fault injection and its table. All tests of a file use the same one."""
    tables = Tables(s3_server, tmp_path_factory)
    yield tables
    tables.end()


@pytest.fixture
def real(tmp_path):
    """A redis-server to compare with."""
    socket = tmp_path / "redis.sock"
    words = ["redis-server", "--port", "0", "--unixsocket", str(socket)]
    words += ["--save", "", "--dir", str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    wait_for(socket.exists, "redis-server")
    yield redis.Redis(unix_socket_path=str(socket), decode_responses=True)
    process.terminate()
    process.wait()
