"""The queries of the dashboard and of the rules, and what they name."""

import json
import re
from pathlib import Path

import yaml

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
DASHBOARD = DEPLOY / "grafana" / "antiphon.json"
RULES = DEPLOY / "prometheus" / "antiphon.rules.yml"

# What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "15s", "$__range": "1m", "$__interval": "15s", "$job": ".*", "$instance": ".*"}
NAME = re.compile(r"\b((?:antiphon|process)_[a-z0-9_]+|up)\b(?=\s*(?:\{|\[|\)|$|[-+*/<>=!]|\s))")
SELECTOR = re.compile(r"\b(?:antiphon_[a-z0-9_]+|process_[a-z0-9_]+|up)(?:\{[^}]*\})?")
LABELS = re.compile(r"label_values\((.*),\s*(\w+)\)")

# The rows of the dashboard that are open at first: what an operator needs at once.
OPEN_ROWS = ("Now", "Traffic", "Repairs")
# Families whose label sets come with traffic: a selector that finds nothing may still be right.
# The last is on the page only with TLS, which the tests of deploy/ do not use.
OPEN = (
    "antiphon_requests_total",
    "antiphon_attempts_total",
    "antiphon_tls_certificate_expires_seconds",
)


def substituted(expression):
    """As Grafana sends it."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def panels(dashboard):
    """Every panel, those within rows too."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def of_dashboard():
    """(where, expression), variables substituted."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in panels(dashboard):
        for target in panel.get("targets", []):
            yield f"dashboard, {panel['title']} {target['refId']}", substituted(target["expr"])
    for annotation in dashboard["annotations"]["list"]:
        yield f"dashboard, annotation {annotation['name']}", substituted(annotation["expr"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            series, _ = LABELS.fullmatch(variable["definition"]).groups()
            yield f"dashboard, variable {variable['name']}", substituted(series)


def rules():
    """Every alert."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def of_rules():
    """(where, expression)."""
    for rule in rules():
        yield f"rule {rule['alert']}", rule["expr"]


def names(expression):
    """The metrics that an expression names."""
    without_labels = re.sub(r"\{[^}]*\}", "", expression)
    without_groups = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", "", without_labels)
    return {found.group(1) for found in NAME.finditer(without_groups)}


def selectors(expression):
    """The selectors of an expression, each with its labels."""
    return {found.group(0) for found in SELECTOR.finditer(expression)}


def dashboard_faults():
    """What is wrong with the dashboard by itself."""
    dashboard = json.loads(DASHBOARD.read_text())
    seen, planes = set(), {}
    folded = [panel for panel in dashboard["panels"] if panel.get("collapsed")]
    for panel in panels(dashboard):
        title = panel.get("title") or f"panel {panel['id']}"
        if panel["id"] in seen:
            yield f"{title}: the id {panel['id']} is there twice"
        seen.add(panel["id"])
        if panel["type"] == "row" and panel["collapsed"] == (panel["title"] in OPEN_ROWS):
            yield f"the row {title}: only {', '.join(OPEN_ROWS)} are open"
        # Each folded row has a plane of its own.
        taken = planes.setdefault(next((row["id"] for row in folded if panel in row["panels"]), None), {})
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                if x >= 24 or taken.setdefault((x, y), title) != title:
                    yield f"{title} lies over {taken.get((x, y))}, or outside"
        if panel["type"] == "row":
            continue
        if not panel.get("description"):
            yield f"{title} has no description"
        if panel.get("datasource") != {"type": "prometheus", "uid": "${datasource}"}:
            yield f"{title} does not ask the data source that was chosen"
        references = [target["refId"] for target in panel["targets"]]
        if len(set(references)) != len(references):
            yield f"{title}: two queries of one name"


def rule_faults():
    """What is wrong with the rules by themselves."""
    alerts = [rule["alert"] for rule in rules()]
    for alert in sorted({alert for alert in alerts if alerts.count(alert) > 1}):
        yield f"{alert} is there twice"
    for rule in rules():
        if rule["labels"].get("severity") not in ("critical", "warning", "info"):
            yield f"{rule['alert']} has no severity"
        for text in ("summary", "description", "runbook"):
            if not rule["annotations"].get(text):
                yield f"{rule['alert']} has no {text}"
