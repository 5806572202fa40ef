"""docs/reference/openapi.json agrees with the server's routes and with its answers."""

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = json.loads((ROOT / "docs/reference/openapi.json").read_text())
ROUTES = (ROOT / "crates/forebay-server/src/http/mod.rs").read_text()
VALUES = {"table": "people", "key": "1", "id": "c1", "step": "hold", "file": "f.run"}


def resolved(part):
    """A part of the document, with references resolved."""
    while "$ref" in part:
        found = DOCUMENT
        for name in part["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        part = found
    return part


def test_the_document_has_exactly_the_routes_of_the_server():
    routes = set()
    for part in ROUTES.split(".route(")[1:]:
        route = part.split("\n}")[0]
        path, names = re.search(r'"([^"]+)"', route)[1], re.findall(r"\b(get|post|delete)\(", route)
        # An empty key has its own route.
        path = path.replace("{*key}", "{key}")
        path = f"{path}{{key}}" if path.endswith("/rows/") else path
        assert names, route
        routes |= {(path, name) for name in names}
    documented = {
        (path, name) for path, operations in DOCUMENT["paths"].items() for name in operations
    }
    assert routes == documented


def test_a_server_answers_as_documented(served):
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            check(f"http://127.0.0.1:{served.http}{path.format(**VALUES)}", method, operation)


def check(url, method, operation):
    body = b"{}" if method == "post" else None
    request = urllib.request.Request(url, body, method=method.upper())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, content = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, content = error.code, error.read()
    assert str(status) in operation["responses"], (url, method, status, content)
    answers = resolved(operation["responses"][str(status)]).get("content", {})
    schema = resolved(answers.get("application/json", {}).get("schema", {}))
    if "required" in schema:
        assert set(schema["required"]) <= json.loads(content).keys(), (url, content)
