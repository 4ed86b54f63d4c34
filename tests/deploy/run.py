#!/usr/bin/env python3
"""The metrics page under a real Prometheus, and everything in deploy/.

    python3 tests/deploy/run.py [PATH OF THE BINARY]      default: $ANTIPHON_BIN, else target/debug/antiphon

Installs what it needs of PyPI below target/. What is missing on this machine (prometheus, promtool, kubectl,
docker compose, systemd-analyze, haproxy, nginx, PostgreSQL) is skipped aloud. The last line is `N passed, N failed`; it
exits with 1 if any failed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from install import TARGET, python_with  # noqa: E402
from running import antiphon  # noqa: E402

INSIDE = "ANTIPHON_DEPLOY_INSIDE"
SERIES_MAX = 2000
COMPONENTS = ("scrape", "replicas")
# A start waits as long as this for the database.
DATABASE_SECONDS = 60
EXPOSURE_MAX = 1.5


def environment():
    """This script again, where the packages are installed."""
    python = python_with(HERE / "requirements.txt", "deploy-venv", "what checks deploy/")
    if not python:
        return 0
    sys.stdout.flush()
    return subprocess.run([str(python), __file__, *sys.argv[1:]], env=os.environ | {INSIDE: "1"}, check=False).returncode


def tool(name):
    """The path of a program; None, with a word, where it is not installed."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
    if not found:
        print(f"skipped: {name} is not installed")
    return found


def done(*command):
    """What is wrong with a command: nothing if it exits with 0, else what it said."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if ran.returncode == 0 else (ran.stdout + ran.stderr).strip() or f"exit {ran.returncode}"


# The checks. Each yields its name and what is wrong, or an empty string.


def check_files():
    """What can be said without anything running."""
    from expressions import DEPLOY, dashboard_faults, rule_faults

    yield "the dashboard is whole", "; ".join(dashboard_faults())
    yield "every rule says what it is and what to do", "; ".join(rule_faults())
    if promtool := tool("promtool"):
        yield "promtool check rules", done(promtool, "check", "rules", str(DEPLOY / "prometheus" / "antiphon.rules.yml"))
        yield "promtool check config", done(promtool, "check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
        yield "promtool check config of compose", check_compose_scrape(promtool)
        yield "promtool test rules", done(promtool, "test", "rules", str(HERE / "rules.test.yml"))
    yield "every alert is tested", untested_alerts()
    yield from check_kubernetes(DEPLOY / "kubernetes")
    yield from check_compose()


def untested_alerts():
    """Alerts that no test expects."""
    from expressions import rules

    tests = (HERE / "rules.test.yml").read_text()
    return ", ".join(rule["alert"] for rule in rules() if f'alertname="{rule["alert"]}"' not in tests)


def check_compose_scrape(promtool):
    """The configuration of Prometheus in the compose file, with files that exist here."""
    from compose import FOLDER, TOKEN
    from prometheus import replaced

    with tempfile.TemporaryDirectory() as home:
        token, config = Path(home) / "token", Path(home) / "prometheus.yml"
        token.write_text(TOKEN)
        config.write_text(replaced((FOLDER / "prometheus.yml").read_text(), ("/run/secrets/admin-token", str(token))))
        return done(promtool, "check", "config", str(config))


def check_compose():
    """The compose file fits to the image, and a reader of compose files accepts it."""
    from compose import FOLDER, compose_command, compose_faults

    yield "the compose file fits to the image", "; ".join(compose_faults())
    command = compose_command()
    if not command:
        print("skipped: docker compose and docker-compose are not installed")
        return
    yield f"{' '.join(command)} config", done(*command, "-f", str(FOLDER / "compose.yaml"), "config", "-q")


def check_kubernetes(folder):
    """The manifests as kubectl makes them, without and with each component, against Kubernetes' own schemas."""
    import yaml

    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    named = [*kustomization["resources"], *(file for made in kustomization["configMapGenerator"] for file in made["files"])]
    missing = [name for name in named if not (folder / name).is_file()]
    yield "kustomization: everything that it names is there", ", ".join(missing)
    base = [it for name in kustomization["resources"] for it in yaml.safe_load_all((folder / name).read_text())]
    for name in kustomization["resources"]:
        yield from check_manifests(name, (folder / name).read_text())
    for name in COMPONENTS:
        yield f"kustomization: the component {name} changes what is there", "; ".join(component_faults(folder / name, base))
    kubectl = tool("kubectl")
    if not kubectl:
        return
    for name, components in [
        ("plain", []), ("scraped", ["scrape"]), ("replicas", ["replicas"]), ("replicas, scraped", list(COMPONENTS)),
    ]:
        with tempfile.TemporaryDirectory() as home:
            copy = Path(home) / "kubernetes"
            shutil.copytree(folder, copy)
            if components:
                yield f"kustomization, {name}: it can be turned on", turn_on(copy / "kustomization.yaml", components)
            ran = subprocess.run([kubectl, "kustomize", str(copy)], capture_output=True, text=True, check=False)
        yield f"kubectl kustomize, {name}", ran.stderr.strip() if ran.returncode else ""
        yield from check_manifests(name, ran.stdout)
        manifests = list(yaml.safe_load_all(ran.stdout))
        if "scrape" in components:
            yield from check_monitor(manifests)
        if "replicas" in components:
            yield f"kubernetes, {name}: several pods share one ledger", "; ".join(replica_pod_faults(manifests))


def turn_on(file, components):
    """Removes the # before components, as the file says. Returns what is wrong with it."""
    text = file.read_text()
    for line in ["components:", *(f"  - {name}" for name in components)]:
        if f"\n# {line}\n" not in text:
            return f"no line '# {line}'"
        text = text.replace(f"\n# {line}\n", f"\n{line}\n")
    file.write_text(text)
    return ""


def component_faults(folder, base):
    """Files of a component that are missing, and changes to what the base does not have: kustomize would add these."""
    import yaml

    component = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if (component["kind"], component["apiVersion"]) != ("Component", "kustomize.config.k8s.io/v1alpha1"):
        yield "it is no component"
    files = [*component["resources"], *(patch["path"] for patch in component["patches"])]
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        yield f"there is no {', '.join(missing)}"
        return
    for patch in component["patches"]:
        for change in yaml.safe_load_all((folder / patch["path"]).read_text()):
            key = (change["kind"], change["metadata"]["name"])
            target = next((it for it in base if (it["kind"], it["metadata"]["name"]) == key), None)
            if not target:
                yield f"there is no {key[0]} {key[1]}"
                continue
            pod, changed = (it["spec"]["template"]["spec"] for it in (target, change))
            yield from change_faults(pod, changed, "")


def change_faults(there, change, path):
    """Containers that a patch changes, and entries of lists that it deletes, without their being there."""
    for field, entries in change.items():
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            continue
        key = "mountPath" if field == "volumeMounts" else "name"
        known = {entry.get(key): entry for entry in there.get(field, [])}
        for entry in entries:
            name = entry.get(key)
            if name not in known and (entry.get("$patch") == "delete" or field in ("containers", "initContainers")):
                yield f"there is no {path}{field} {name}"
            elif name in known:
                yield from change_faults(known[name], entry, f"{path}{field} {name}: ")


def replica_pod_faults(manifests):
    """What is wrong with the Deployment of several pods and its budget."""
    deployment = next(it for it in manifests if it["kind"] == "Deployment")["spec"]
    budget = next(it for it in manifests if it["kind"] == "PodDisruptionBudget")["spec"]
    labels, pod = deployment["template"]["metadata"]["labels"].items(), deployment["template"]["spec"]
    if deployment["replicas"] <= budget["minAvailable"]:
        yield "the budget lets no pod go"
    if deployment["strategy"] != {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}:
        yield f"a rollout takes pods away: {deployment['strategy']}"
    spread = pod["topologySpreadConstraints"]
    for selector in [budget["selector"], *(it["labelSelector"] for it in spread)]:
        if not selector["matchLabels"].items() <= labels:
            yield f"{selector} selects no pod"
    if any(it["whenUnsatisfiable"] != "ScheduleAnyway" for it in spread):
        yield "a cluster with one node cannot run it"
    sidecar = next(it for it in pod["initContainers"] if it["name"] == "antiphon")
    variables = {it["name"]: it["value"] for it in sidecar["env"]}
    if variables.get("ANTIPHON_LEDGER_STORE") != "postgres" or "XDG_STATE_HOME" in variables:
        yield "the ledger is a file"
    if any("emptyDir" in volume or "persistentVolumeClaim" in volume for volume in pod["volumes"]):
        yield "a volume for the ledger is left"
    mounts = {it["name"]: it["mountPath"] for it in sidecar["volumeMounts"]}
    kept = {it["name"]: it["secret"] for it in pod["volumes"] if "secret" in it}
    folders = {mounts[name]: secret["secretName"] for name, secret in kept.items()}
    folder, _, key = variables.get("ANTIPHON_LEDGER_URL_FILE", "").rpartition("/")
    if (folders.get(folder), key) != ("antiphon-ledger", "url"):
        yield "the URL is in no secret"
    if mounts.keys() - {it["name"] for it in pod["volumes"]}:
        yield "a mount without its volume"
    if sidecar["startupProbe"]["periodSeconds"] * sidecar["startupProbe"]["failureThreshold"] <= DATABASE_SECONDS:
        yield "the kubelet kills a sidecar that waits for the database"


def check_manifests(name, text):
    """Manifests against the schemas of Kubernetes. Those of other programs have none here."""
    import kubernetes_validate
    import yaml

    for manifest in yaml.safe_load_all(text):
        if "monitoring.coreos.com" in manifest["apiVersion"]:
            continue
        label = f"kubernetes, {name}: {manifest['kind']} {manifest['metadata']['name']}"
        try:
            kubernetes_validate.validate(manifest, "1.37", strict=True)
            yield label, ""
        except kubernetes_validate.ValidationError as error:
            yield label, f"{error.path}: {error.message}"


def check_monitor(manifests):
    """The PodMonitor finds the pods, their port and the token, and gives the job the name that the rules use."""
    pod = next(it for it in manifests if it["kind"] == "Deployment")["spec"]["template"]
    monitor = next(it for it in manifests if it["kind"] == "PodMonitor")["spec"]
    labels = monitor["selector"]["matchLabels"].items()
    yield "PodMonitor: its pods", "" if labels <= pod["metadata"]["labels"].items() else "it finds none"
    sidecar = next(it for it in pod["spec"]["initContainers"] if it["name"] == "antiphon")
    variables = {it["name"]: it["value"] for it in sidecar["env"]}
    endpoint = monitor["podMetricsEndpoints"][0]
    port = [it["containerPort"] for it in sidecar["ports"] if it["name"] == endpoint["port"]]
    listens = variables["ANTIPHON_ADMIN_LISTEN"] == f"0.0.0.0:{port[0] if port else None}"
    yield "PodMonitor: its port", "" if listens else f"{port} {variables}"
    secret = endpoint["authorization"]["credentials"]
    mounts = {it["name"]: it["mountPath"] for it in sidecar["volumeMounts"]}
    volumes = {it["name"]: it.get("secret", {}).get("secretName") for it in pod["spec"]["volumes"]}
    files = [f"{mounts[name]}/{secret['key']}" for name, kept in volumes.items() if kept == secret["name"]]
    yield "PodMonitor: its token", "" if variables["ANTIPHON_ADMIN_TOKEN_FILE"] in files else f"{files}"
    job = {"action": "replace", "targetLabel": "job", "replacement": "antiphon"}
    yield "PodMonitor: its job", "" if job in endpoint["relabelings"] else f"{endpoint['relabelings']}"


def check_systemd(unit, binary):
    """The unit is read by systemd, and lets the process do little. Its manual page is that of the binary."""
    analyze = tool("systemd-analyze")
    if not analyze:
        return
    with tempfile.TemporaryDirectory() as home:
        page = Path(home) / "man1" / "antiphon.1"
        page.parent.mkdir()
        page.write_bytes(subprocess.run([str(binary), "man"], capture_output=True, check=True).stdout)
        # systemd asks `man` for every page that the unit names.
        manual = "--man=yes" if shutil.which("man") else "--man=no"
        environment = os.environ | {"MANPATH": home}
        command = [analyze, "verify", manual, str(unit)]
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    # The binary is not installed here, nor the units that it waits for.
    known = re.compile(r"is not executable|Failed to (load|open|prepare)|not found")
    faults = [line for line in (ran.stdout + ran.stderr).splitlines() if unit.name in line and not known.search(line)]
    yield f"systemd-analyze verify {manual}", "; ".join(faults)
    links = [line for line in unit.read_text().splitlines() if line.startswith("Documentation=") and "://" in line]
    yield "the unit leads to no page that may not exist", "; ".join(links)
    ran = subprocess.run(
        [analyze, "security", "--offline=true", str(unit)], capture_output=True, text=True, check=False
    )
    level = re.search(r"exposure level for \S+: ([\d.]+)", ran.stdout)
    wrong = "" if level and float(level[1]) <= EXPOSURE_MAX else ran.stdout[-300:] + ran.stderr
    yield f"systemd-analyze security: {level[1] if level else 'not told'}", wrong


def check_sockets(folder):
    """The socket units are read by systemd, and belong to the service."""
    analyze = tool("systemd-analyze")
    for unit in sorted(folder.glob("*.socket")):
        lines = unit.read_text().splitlines()
        yield f"{unit.name} belongs to the service", "" if "Service=antiphon.service" in lines else "it names another"
        if analyze:
            command = [analyze, "verify", "--man=no", str(unit), str(folder / "antiphon.service")]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            faults = [line for line in (ran.stdout + ran.stderr).splitlines() if unit.name in line and "not found" not in line]
            yield f"systemd-analyze verify {unit.name}", "; ".join(faults)


ACTION_SOUND = [{"role": "user", "content": "hi"}]
ACTION_BROKEN = [*ACTION_SOUND, {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]
# Command, files, version, exit code, output `findings`, and what the log says.
ACTION_ROWS = [
    ("check", "sound.json", "", 0, "false", ""),
    ("check", "broken.json", "", 1, "true", "unanswered"),
    ("check", "*.json", "", 1, "true", "unanswered"),
    ("check", "with?blank.json", "", 0, "false", ""),
    ("check", "none*.json sound.json", "", 2, "", "no file matches"),
    ("check", "missing.json", "", 2, "", "missing.json"),
    ("check", "  ", "", 2, "", "files is empty"),
    ("check", "$(touch${IFS}pwned);touch${IFS}pwned", "", 2, "", "could not read"),
    ("check;touch${IFS}pwned", "sound.json", "", 2, "", "command is check or doctor"),
    ("check", "--output sound.json", "", 2, "", "could not read"),
    ("check", "sound.json", "99.0.0", 2, "", "use the ref of that version"),
    ("doctor", "session.jsonl", "", 0, "false", ""),
    ("doctor", "damaged.jsonl", "", 1, "true", "nul_bytes"),
    ("doctor", "*.jsonl", "", 1, "true", "nul_bytes"),
    ("doctor", "sound.json", "", 2, "", "could not read"),
]
# A binary that an earlier step has built, below the folder of the runner: what is in PATH, and the version that is asked for.
ACTION_BUILT_ROWS = [
    ("nothing", ""),
    ("nothing", "its own"),
    ("an older one", "its own"),
]
ACTION_SESSION = HERE.parent / "sessions" / "samples" / "claude-code-2.1.332.jsonl"


def check_action(binary):
    """The script of the action, with the binary in PATH, and without a way to build another."""
    import yaml
    from expressions import DEPLOY

    folder = DEPLOY / "action"
    action = yaml.safe_load((folder / "action.yml").read_text())
    step = action["runs"]["steps"][0]
    given = {f"INPUT_{name.upper()}": f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}
    yield "action: each input reaches the script", "" if given.items() <= step["env"].items() else f"{step['env']}"
    script = folder / "run"
    unread = [name for name in given if f"${{{name}:-" not in script.read_text()]
    yield "action: the script reads each input", ", ".join(unread)
    document = (DEPLOY.parent / "docs" / "agents.md").read_text()
    untold = [name for name in action["inputs"] if f"| `{name}` |" not in document]
    yield "action: the document names each input", ", ".join(untold)
    bash = tool("bash")
    if not bash:
        return
    for row in ACTION_ROWS:
        with tempfile.TemporaryDirectory() as home:
            home = Path(home)
            (home / "bin").mkdir()
            (home / "bin" / "antiphon").symlink_to(binary)
            yield f"action: {row[0]} {row[1]!r} {row[2]}".rstrip(), action_fault(bash, script, home, row)
    own = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    for in_path, asked in ACTION_BUILT_ROWS:
        with tempfile.TemporaryDirectory() as home:
            home = Path(home)
            built = home / "runner" / "antiphon-action" / "bin"
            built.mkdir(parents=True)
            (built / "antiphon").symlink_to(binary)
            stand_in(home / "bin" / "cargo", "touch rebuilt; exit 1")
            if in_path == "an older one":
                stand_in(home / "bin" / "antiphon", "echo antiphon 0.0.1")
            row = ("check", "broken.json", own if asked else "", 1, "true", "unanswered")
            fault = action_fault(bash, script, home, row)
            fault = fault or ("it was built once more" if (home / "rebuilt").exists() else "")
            yield f"action: built before, {in_path} in PATH, version {asked or 'any'}", fault


def stand_in(path, line):
    """Writes a program of one line."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def action_fault(bash, script, home, row):
    """Runs the script over one row. Returns what is wrong."""
    command, files, version, code, findings, said = row
    for name, history in [("sound", ACTION_SOUND), ("broken", ACTION_BROKEN), ("with blank", ACTION_SOUND)]:
        (home / f"{name}.json").write_text(json.dumps(history))
    session = ACTION_SESSION.read_bytes()
    (home / "session.jsonl").write_bytes(session)
    # NUL bytes before a message cost it.
    (home / "damaged.jsonl").write_bytes(session.replace(b'{"parentUuid"', b'\0\0{"parentUuid"'))
    output = home / "output"
    variables = {
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "INPUT_COMMAND": command,
        "INPUT_FILES": files,
        "INPUT_VERSION": version,
        "GITHUB_OUTPUT": str(output),
        "RUNNER_TEMP": str(home / "runner"),
        "ACTION_PATH": str(script.parent),
    }
    ran = subprocess.run(
        [bash, str(script)], cwd=home, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    told = output.read_text() if output.exists() else ""
    due = f"findings={findings}\n" if findings else ""
    log = ran.stdout + ran.stderr
    wrong = [f"exit {ran.returncode}, not {code}"] if ran.returncode != code else []
    wrong += [f"output {told!r}"] if told != due else []
    wrong += [f"it does not say {said!r}"] if said not in log else []
    wrong += ["an input was run as a command"] if (home / "pwned").exists() else []
    return "; ".join([*wrong, log.strip()]) if wrong else ""


def check_config(binary):
    """The configuration of the sidecar is one."""
    from expressions import DEPLOY

    file = DEPLOY / "kubernetes" / "antiphon.toml"
    yield "antiphon config check of the sidecar's file", done(str(binary), "config", "check", "-c", str(file))


def check_traffic(base):
    """Requests of every kind, so that there is something to see."""
    from traffic import send

    for _ in range(3):
        for name, due, came in send(base):
            if due != came:
                yield f"traffic: {name}", f"{came}, not {due}"
    yield "traffic of every kind", ""


def fetch_page(admin, accept):
    """The metrics page, in the format that is asked for."""
    request = urllib.request.Request(f"{admin}/metrics", headers={"accept": accept})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read().decode()


def check_formats(admin):
    """The page in both formats has the same samples, and promtool accepts it as text."""
    from prometheus_client.parser import text_string_to_metric_families

    page, text = fetch_page(admin, "application/openmetrics-text"), fetch_page(admin, "*/*")
    samples = [{re.split(r" (?=[^ ]*$)", line)[0] for line in it.splitlines() if line[:1] != "#"} for it in (page, text)]
    yield "both formats have the same series", "; ".join(sorted(samples[0] ^ samples[1]))
    families = list(text_string_to_metric_families(text))
    silent = [family.name for family in families if not family.documentation or family.type in ("unknown", "untyped")]
    yield f"the page is text: {len(families)} metrics", ", ".join(silent)
    if promtool := tool("promtool"):
        ran = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        yield "promtool check metrics", (ran.stdout + ran.stderr).strip()


def check_page(page):
    """The page is OpenMetrics, as the reference parser reads it, and not too long."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    try:
        families = list(text_string_to_metric_families(page))
    except ValueError as error:
        yield "the page is OpenMetrics", str(error)
        return
    samples = sum(len(family.samples) for family in families)
    yield f"the page is OpenMetrics: {len(families)} metrics", "" if families else "it is empty"
    yield f"the page has {samples} series", "" if 0 < samples <= SERIES_MAX else f"more than {SERIES_MAX}"
    silent = [family.name for family in families if not family.documentation or family.type == "unknown"]
    yield "every metric says what it is", ", ".join(silent)


def check_names(page):
    """Dashboard and rules name what the page has; what it has is on the dashboard or in a rule."""
    from expressions import OPEN, names, of_dashboard, of_rules

    samples = {re.split(r"[{ ]", line)[0] for line in page.splitlines() if line and not line.startswith("#")}
    named = set()
    for where, expression in [*of_dashboard(), *of_rules()]:
        found = names(expression)
        unknown = found - samples - {"up", *OPEN}
        if unknown or not found:
            yield f"{where}: names what there is", f"not on the page: {sorted(unknown)} of {expression}"
        named |= found
    yield "dashboard and rules name what there is", ""
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in named}
    unseen = sorted({re.sub(r"_(bucket|count|sum)$", "", name) for name in samples} - shown)
    yield "every metric is on the dashboard or in a rule", ", ".join(unseen)


def check_queries(api):
    """Every expression is answered, and every selector finds something."""
    from expressions import OPEN, of_dashboard, of_rules, selectors

    for target in api.get("targets", state="active")["activeTargets"]:
        yield f"the scrape of {target['labels']['job']}", "" if target["health"] == "up" else target["lastError"]
    for group in api.get("rules")["groups"]:
        for rule in group["rules"]:
            if rule["health"] != "ok":
                yield f"Prometheus evaluates {rule['name']}", rule.get("lastError", rule["health"])
    asked = answered = 0
    for where, expression in [*of_dashboard(), *of_rules()]:
        asked += 1
        try:
            answered += bool(api.query(expression))
        except RuntimeError as error:
            yield f"{where}: is answered", f"{error}: {expression}"
            continue
        for selector in selectors(expression):
            if not selector.startswith(OPEN) and not api.get("series", **{"match[]": selector}):
                yield f"{where}: finds what it selects", selector
    yield f"Prometheus answers {asked} expressions, {answered} of them with figures", "" if answered else "none"


def report(checks, tally):
    for name, wrong in checks:
        tally[bool(wrong)] += 1
        print(f"FAILED {name}: {wrong}" if wrong else f"ok {name}", flush=True)


def check_running(binary, tally):
    """What the running proxy shows, alone and under Prometheus."""
    from compose import check_container
    from prometheus import configured, prometheus
    from provider import Provider
    from traffic import config

    opened = "application/openmetrics-text"
    with Provider() as provider, antiphon(binary, ["anthropic"], provider, config(provider)) as (base, admin):
        report(check_page(fetch_page(admin, opened)), tally)
        report(check_traffic(base), tally)
        page = fetch_page(admin, opened)
        report(check_page(page), tally)
        report(check_formats(admin), tally)
        report(check_names(page), tally)
        if program := tool("prometheus"):
            with prometheus(program, configured(admin)) as api:
                report(check_traffic(base), tally)
                report(check_queries(api), tally)
    with Provider() as provider:
        report(check_container(binary, provider), tally)


def main():
    for key in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        os.environ.pop(key, None)
    sys.path.insert(0, str(HERE))
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN") or TARGET / "debug" / "antiphon")
    binary = binary.resolve()
    tally = [0, 0]
    report(check_files(), tally)
    report(check_config(binary), tally)
    report(check_action(binary), tally)
    report(check_systemd(HERE.parent.parent / "deploy" / "systemd" / "antiphon.service", binary), tally)
    from replicas import check_replica_files, check_replicas
    from rolling import check_balancers

    report(check_balancers(binary), tally)
    report(check_replica_files(binary), tally)
    try:
        report(check_replicas(binary), tally)
    except (OSError, RuntimeError) as error:
        report([("the replicas run", str(error))], tally)
    report(check_sockets(HERE.parent.parent / "deploy" / "systemd"), tally)
    try:
        check_running(binary, tally)
    except (OSError, RuntimeError) as error:
        report([("antiphon and prometheus run", str(error))], tally)
    print(f"{tally[0]} passed, {tally[1]} failed")
    return 1 if tally[1] else 0


if __name__ == "__main__":
    sys.exit(main() if os.environ.get(INSIDE) else environment())
