"""Hooks of schemathesis for `/ledger/v1`: what the document cannot express.

`LEDGER_CALLS` has the ids of recorded calls, separated by blanks. `LEDGER_TAG` is the tag of the tested operations.
"""

import os
from itertools import chain, count, cycle
from urllib.parse import unquote

import schemathesis

# Every second request is about a recorded call: a generated id never is.
CALLS = cycle(chain.from_iterable((None, call) for call in os.environ["LEDGER_CALLS"].split()))

# A key that is used again with another input is refused, as it should be.
KEYS = count()


@schemathesis.hook
def before_call(context, case, kwargs):
    """Lets requests that should be accepted name a recorded call, in the path as in the body."""
    if not case.meta or not case.meta.generation.mode.is_positive:
        return
    # The credential decides whose claim it is: a service names a user.
    is_own_claim = isinstance(case.body, dict) and not {"call_id", "user"} & case.body.keys()
    if is_own_claim and "tool" in case.body and os.environ["LEDGER_TAG"] == "intents":
        case.body["user"] = "ann"
    if case.headers and "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = f"key {next(KEYS)}"
    if "call_id" not in (case.path_parameters or {}):
        return
    case.path_parameters["call_id"] = next(CALLS) or case.path_parameters["call_id"]
    if isinstance(case.body, dict) and isinstance(case.body.get("call_id"), str):
        # The path is percent-encoded already.
        case.body["call_id"] = unquote(case.path_parameters["call_id"])
