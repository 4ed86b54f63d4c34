#!/usr/bin/env python3
"""The metrics page under a real Prometheus, and everything in deploy/.

    python3 tests/deploy/run.py [PATH OF THE BINARY]      default: $ANTIPHON_BIN, else target/debug/antiphon

Installs what it needs of PyPI below target/. What is missing on this machine (prometheus, promtool, systemd-analyze) is
skipped aloud. The last line is `N passed, N failed`; it exits with 1 if any failed.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from install import TARGET, python_with  # noqa: E402
from running import antiphon, fetch  # noqa: E402

INSIDE = "ANTIPHON_DEPLOY_INSIDE"
SERIES_MAX = 2000
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
        yield "promtool test rules", done(promtool, "test", "rules", str(HERE / "rules.test.yml"))
    yield "every alert is tested", untested_alerts()
    yield from check_kubernetes(DEPLOY / "kubernetes")
    yield from check_systemd(DEPLOY / "systemd" / "antiphon.service")


def untested_alerts():
    """Alerts that no test expects."""
    from expressions import rules

    tests = (HERE / "rules.test.yml").read_text()
    return ", ".join(rule["alert"] for rule in rules() if f'alertname="{rule["alert"]}"' not in tests)


def check_kubernetes(folder):
    """The manifests against Kubernetes' own schemas, and the kustomization against the folder."""
    import kubernetes_validate
    import yaml

    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    named = [*kustomization["resources"], *(file for made in kustomization["configMapGenerator"] for file in made["files"])]
    missing = [name for name in named if not (folder / name).is_file()]
    yield "kustomization: everything that it names is there", ", ".join(missing)
    for name in kustomization["resources"]:
        for manifest in yaml.safe_load_all((folder / name).read_text()):
            label = f"{manifest['kind']} {manifest['metadata']['name']}"
            try:
                kubernetes_validate.validate(manifest, "1.37", strict=True)
                yield f"kubernetes: {label}", ""
            except kubernetes_validate.ValidationError as error:
                yield f"kubernetes: {label}", f"{error.path}: {error.message}"


def check_systemd(unit):
    """The unit is read by systemd, and lets the process do little."""
    analyze = tool("systemd-analyze")
    if not analyze:
        return
    ran = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
    # The binary is not installed here, nor the units that it waits for.
    known = re.compile(r"is not executable|Failed to (load|open|prepare)|not found")
    faults = [line for line in (ran.stdout + ran.stderr).splitlines() if unit.name in line and not known.search(line)]
    yield "systemd-analyze verify", "; ".join(faults)
    ran = subprocess.run(
        [analyze, "security", "--offline=true", str(unit)], capture_output=True, text=True, check=False
    )
    level = re.search(r"exposure level for \S+: ([\d.]+)", ran.stdout)
    wrong = "" if level and float(level[1]) <= EXPOSURE_MAX else ran.stdout[-300:] + ran.stderr
    yield f"systemd-analyze security: {level[1] if level else 'not told'}", wrong


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
    from expressions import names, of_dashboard, of_rules

    samples = {re.split(r"[{ ]", line)[0] for line in page.splitlines() if line and not line.startswith("#")}
    named = set()
    for where, expression in [*of_dashboard(), *of_rules()]:
        found = names(expression)
        unknown = found - samples - {"up"}
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
    from prometheus import prometheus
    from provider import Provider
    from traffic import config

    with Provider() as provider, antiphon(binary, ["anthropic"], provider, config(provider)) as (base, admin):
        report(check_page(fetch(f"{admin}/metrics")), tally)
        report(check_traffic(base), tally)
        page = fetch(f"{admin}/metrics")
        report(check_page(page), tally)
        report(check_names(page), tally)
        if program := tool("prometheus"):
            with prometheus(program, admin) as api:
                report(check_traffic(base), tally)
                report(check_queries(api), tally)


def main():
    for key in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        os.environ.pop(key, None)
    sys.path.insert(0, str(HERE))
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN") or TARGET / "debug" / "antiphon")
    binary = binary.resolve()
    tally = [0, 0]
    report(check_files(), tally)
    report(check_config(binary), tally)
    try:
        check_running(binary, tally)
    except (OSError, RuntimeError) as error:
        report([("antiphon and prometheus run", str(error))], tally)
    print(f"{tally[0]} passed, {tally[1]} failed")
    return 1 if tally[1] else 0


if __name__ == "__main__":
    sys.exit(main() if os.environ.get(INSIDE) else environment())
