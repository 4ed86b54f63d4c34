#!/usr/bin/env python3
"""TLS towards clients, as real clients and a scanner see it: curl, httpx, the official OpenAI SDK, and sslyze.

    python3 tests/tls/run.py [PATH OF THE BINARY]      default: $ANTIPHON_BIN, else target/debug/antiphon

Installs what it needs of PyPI below target/. What is missing on this machine is skipped aloud. The last line is
`N passed, N failed`; it exits with 1 if any failed.
"""

import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from install import TARGET, python_with  # noqa: E402
from running import antiphon  # noqa: E402

INSIDE = "ANTIPHON_TLS_INSIDE"
HOST = "localhost"
BODY = '{"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}'
# The suites of TLS 1.2 that a client may still choose. All others lack forward secrecy or authenticated encryption.
STRONG = ("TLS_ECDHE_",)
WEAK = ("CBC", "RC4", "3DES", "NULL", "EXPORT", "MD5", "anon")


def environment():
    """This script again, where the packages are installed."""
    python = python_with(HERE / "requirements.txt", "tls-venv", "what checks TLS")
    if not python:
        return 0
    sys.stdout.flush()
    return subprocess.run([str(python), __file__, *sys.argv[1:]], env=os.environ | {INSIDE: "1"}, check=False).returncode


class Files:
    """A CA with a certificate for the listeners, and a CA with two client certificates."""

    def __init__(self, home):
        import trustme

        servers, clients = trustme.CA(), trustme.CA()
        self.home = Path(home)
        self.server_ca = self.write("servers.pem", servers.cert_pem)
        self.client_ca = self.write("clients.pem", clients.cert_pem)
        own = servers.issue_cert(HOST, "127.0.0.1")
        self.certificate = self.write("fullchain.pem", *own.cert_chain_pems)
        self.key = self.write("privkey.pem", own.private_key_pem)
        self.known = self.write_client("known", clients.issue_cert("ci.example.org"))
        self.unknown = self.write_client("unknown", clients.issue_cert("other.example.org"))

    def write(self, name, *blobs):
        path = self.home / name
        path.write_bytes(b"".join(blob.bytes() for blob in blobs))
        path.chmod(0o600)
        return path

    def write_client(self, name, issued):
        return self.write(f"{name}.pem", issued.private_key_pem, *issued.cert_chain_pems)

    def config(self):
        """The configuration. The admin listener stays plain, so that the script sees when the proxy is ready."""
        return (
            f'[server.tls]\ncertificate = "{self.certificate}"\nkey = "{self.key}"\nclient_ca = "{self.client_ca}"\n'
            'admin = false\n[client_certificates]\nci = ["ci.example.org"]\n[ledger]\nstore = "memory"\n'
        )

    def context(self, client=None):
        """What a Python client trusts, and presents."""
        context = ssl.create_default_context(cafile=str(self.server_ca))
        if client:
            context.load_cert_chain(client)
        return context


# The checks. Each yields its name and what is wrong, or an empty string.


def curl(files, base, *options):
    """The status, the version of HTTP and the exit code of one request with curl."""
    command = ["curl", "-sS", "-o", os.devnull, "-w", "%{http_code} %{http_version}", "--max-time", "20"]
    command += ["--cacert", str(files.server_ca), *options, "-H", "content-type: application/json", "-d", BODY]
    ran = subprocess.run([*command, f"{base}/anthropic/v1/messages"], capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else f"exit {ran.returncode}"


def expect(name, found, *wanted):
    return name, "" if found in wanted else f"{found!r}, not {wanted[0]!r}"


def check_curl(files, base):
    """curl, with each version of HTTP and of TLS, and with client certificates."""
    if not shutil.which("curl"):
        print("skipped: curl is not installed")
        return
    yield expect("curl, HTTP/1.1", curl(files, base, "--http1.1"), "200 1.1")
    yield expect("curl, HTTP/2", curl(files, base, "--http2"), "200 2")
    yield expect("curl, TLS 1.2", curl(files, base, "--tls-max", "1.2"), "200 2")
    yield expect("curl, TLS 1.3", curl(files, base, "--tlsv1.3"), "200 2")
    yield expect("curl, TLS 1.1 fails", curl(files, base, "--tls-max", "1.1"), "exit 35")
    yield expect("curl, a known certificate", curl(files, base, "--cert", str(files.known)), "200 2")
    yield expect("curl, an unknown certificate", curl(files, base, "--cert", str(files.unknown)), "403 2")
    yield expect("curl, no trust", curl(files, base, "--cacert", str(files.client_ca)), "exit 60")
    plain = base.replace("https://", "http://")
    yield expect("curl, plain HTTP", curl(files, plain), "400 1.1")
    # curl 7.88 reports a broken line, later ones that HTTP/2 was refused.
    found = curl(files, plain, "--http2-prior-knowledge")
    yield expect("curl, HTTP/2 without TLS fails", found[:4], "exit")


def check_httpx(files, base):
    """httpx, with both versions of HTTP, and a client certificate."""
    import httpx

    for http2, wanted in [(False, "HTTP/1.1"), (True, "HTTP/2")]:
        for client in (None, files.known):
            with httpx.Client(verify=files.context(client), http2=http2) as session:
                answers = [session.post(f"{base}/anthropic/v1/messages", content=BODY) for _ in range(3)]
            found = {(answer.status_code, answer.http_version) for answer in answers}
            yield expect(f"httpx, {wanted}, {'with' if client else 'without'} a certificate", found, {(200, wanted)})


def check_openai(files, base):
    """The official SDK of OpenAI, whole and as a stream."""
    import httpx
    import openai

    with httpx.Client(verify=files.context(files.known)) as session:
        client = openai.OpenAI(base_url=f"{base}/openai/v1", api_key="sk-test", http_client=session, max_retries=0)
        asked = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        whole = client.chat.completions.create(**asked)
        yield "openai, a whole answer", "" if whole.choices[0].message.content else repr(whole)
        chunks = list(client.chat.completions.create(**asked, stream=True))
        yield "openai, a stream", "" if chunks else "no chunk"
    with httpx.Client(verify=files.context(files.unknown)) as session:
        client = openai.OpenAI(base_url=f"{base}/openai/v1", api_key="sk-test", http_client=session, max_retries=0)
        try:
            client.chat.completions.create(**asked)
            yield "openai, an unknown certificate", "it was accepted"
        except openai.PermissionDeniedError as error:
            yield expect("openai, an unknown certificate", error.code, "client_certificate")


def check_scan(port):
    """What a scanner finds: versions, suites, and the faults that a TLS server can have."""
    import sslyze
    from sslyze import ScanCommand

    commands = {
        ScanCommand.SSL_2_0_CIPHER_SUITES, ScanCommand.SSL_3_0_CIPHER_SUITES, ScanCommand.TLS_1_0_CIPHER_SUITES,
        ScanCommand.TLS_1_1_CIPHER_SUITES, ScanCommand.TLS_1_2_CIPHER_SUITES, ScanCommand.TLS_1_3_CIPHER_SUITES,
        ScanCommand.TLS_COMPRESSION, ScanCommand.TLS_1_3_EARLY_DATA, ScanCommand.SESSION_RENEGOTIATION,
        ScanCommand.HEARTBLEED, ScanCommand.OPENSSL_CCS_INJECTION, ScanCommand.ROBOT, ScanCommand.TLS_FALLBACK_SCSV,
    }
    scanner = sslyze.Scanner()
    location = sslyze.ServerNetworkLocation(hostname=HOST, port=port, ip_address="127.0.0.1")
    scanner.queue_scans([sslyze.ServerScanRequest(server_location=location, scan_commands=commands)])
    [found] = scanner.get_results()
    scan = found.scan_result
    if scan is None:
        yield "sslyze connects", str(found.connectivity_status)
        return
    results = {command: getattr(scan, command.value) for command in commands}
    for command, attempt in sorted(results.items(), key=lambda pair: pair[0].value):
        if attempt.result is None:
            yield f"sslyze, {command.value}", f"{attempt.status} {attempt.error_reason}"
    suites = {
        command: [accepted.cipher_suite.name for accepted in attempt.result.accepted_cipher_suites]
        for command, attempt in results.items()
        if command.value.endswith("cipher_suites") and attempt.result
    }
    for command, accepted in sorted(suites.items(), key=lambda pair: pair[0].value):
        if command in (ScanCommand.TLS_1_2_CIPHER_SUITES, ScanCommand.TLS_1_3_CIPHER_SUITES):
            yield f"sslyze, {command.value}: {len(accepted)}", "" if accepted else "none is accepted"
        else:
            yield f"sslyze, {command.value} are refused", ", ".join(accepted)
    of_1_2 = suites[ScanCommand.TLS_1_2_CIPHER_SUITES]
    weak = [name for name in of_1_2 if not name.startswith(STRONG) or any(word in name for word in WEAK)]
    yield "sslyze, no weak suite", ", ".join(weak)
    yield from check_faults(results)


def check_faults(results):
    """The faults, each by the member of its result."""
    from sslyze import RobotScanResultEnum, ScanCommand

    def result(command):
        return results[command].result

    renegotiation = result(ScanCommand.SESSION_RENEGOTIATION)
    faults = {
        "compression": result(ScanCommand.TLS_COMPRESSION).supports_compression,
        "early data": result(ScanCommand.TLS_1_3_EARLY_DATA).supports_early_data,
        "renegotiation by the client": renegotiation.is_vulnerable_to_client_renegotiation_dos,
        "Heartbleed": result(ScanCommand.HEARTBLEED).is_vulnerable_to_heartbleed,
        "CCS injection": result(ScanCommand.OPENSSL_CCS_INJECTION).is_vulnerable_to_ccs_injection,
        "ROBOT": result(ScanCommand.ROBOT).robot_result
        not in (RobotScanResultEnum.NOT_VULNERABLE_RSA_NOT_SUPPORTED, RobotScanResultEnum.NOT_VULNERABLE_NO_ORACLE),
    }
    for name, is_there in faults.items():
        yield f"sslyze, no {name}", "it is there" if is_there else ""


def report(checks, tally):
    for name, wrong in checks:
        tally[bool(wrong)] += 1
        print(f"FAILED {name}: {wrong}" if wrong else f"ok {name}", flush=True)


class Provider:
    """The strict provider of the SDK script."""

    def __enter__(self):
        import threading

        from strict_provider import StrictProvider

        self.server = StrictProvider()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def main():
    # The environment's forward proxy would be asked for this machine.
    for key in [key for key in os.environ if key.lower().endswith("_proxy")]:
        os.environ.pop(key, None)
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN") or TARGET / "debug" / "antiphon")
    tally = [0, 0]
    with tempfile.TemporaryDirectory() as home:
        files = Files(home)
        upstreams = ["anthropic", "openai"]
        with Provider() as provider, antiphon(binary.resolve(), upstreams, provider, files.config()) as (base, _):
            port = int(base.rsplit(":", 1)[1])
            base = f"https://{HOST}:{port}"
            report(check_curl(files, base), tally)
            report(check_httpx(files, base), tally)
            report(check_openai(files, base), tally)
            report(check_scan(port), tally)
    print(f"{tally[0]} passed, {tally[1]} failed")
    return 1 if tally[1] else 0


if __name__ == "__main__":
    sys.exit(main() if os.environ.get(INSIDE) else environment())
