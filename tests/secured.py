"""A certificate and users for test servers, and requests to them."""

import base64
import hashlib
import json
import ssl
import subprocess
import urllib.error
import urllib.request


class Secured:
    """Files in a directory: cert.pem, key.pem, users.json, login. `seer` may read all tables."""

    def __init__(self, directory, days=30):
        self.certificate, self.key = directory / "cert.pem", directory / "key.pem"
        self.users, self.login = directory / "users.json", directory / "login"
        self.make(days)
        self.password = "a password of the tests"
        self.login.write_text(f"seer:{self.password}\n")
        digest = hashlib.sha256(self.password.encode()).hexdigest()
        user = {"name": "seer", "password_sha256": digest, "verbs": ["read"]}
        blind = {**user, "name": "blind", "tables": ["nothing"]}
        self.users.write_text(json.dumps({"users": [{**user, "tables": ["*"]}, blind]}))

    def make(self, days):
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        words += ["-nodes", "-days", str(days), "-subj", "/CN=localhost"]
        words += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        words += ["-addext", "basicConstraints=critical,CA:FALSE"]
        words += ["-keyout", self.key, "-out", self.certificate]
        subprocess.run(words, check=True, capture_output=True)

    def words(self):
        return ["--tls-cert", self.certificate, "--tls-key", self.key, "--users", self.users]

    def asks(self):
        """The options with which a command reaches nodes."""
        return ["--login", self.login, "--tls-ca", self.certificate]

    def context(self):
        return ssl.create_default_context(cafile=str(self.certificate))

    def ask(self, url, user=None, host=None):
        """The status and text of a page. The status is None if nothing answers."""
        request = urllib.request.Request(url)
        if user:
            pair = base64.b64encode(f"{user}:{self.password}".encode()).decode()
            request.add_header("Authorization", f"Basic {pair}")
        if host:
            request.add_header("Host", host)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self.context()) as got:
                return got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return None, str(error)

    def page(self, url, user="seer"):
        status, text = self.ask(url, user)
        assert status == 200, (status, text)
        return text


def certificate(directory, name, *more):
    """Writes a certificate for this machine and its key."""
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "3", "-subj", f"/CN={name}", "-keyout", key, "-out", cert]
    subprocess.run([*words, *more], check=True, capture_output=True)
    return cert, key
