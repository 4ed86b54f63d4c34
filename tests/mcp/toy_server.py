#!/usr/bin/env python3
"""A server of the Model Context Protocol with one tool, which answers at once.

With `--gate FOLDER` it notes each run in the file `runs` of that folder, and answers once the file `gate` is there.
"""

import json
import sys
import time
from pathlib import Path

GATE = Path(sys.argv[2]) if sys.argv[1:2] == ["--gate"] else None
TOOL = {"name": "render", "description": "Renders.", "inputSchema": {"type": "object", "properties": {}}}


def result_of(request):
    """The result of a request. None for one that has none."""
    method = request.get("method")
    if method == "initialize":
        asked = request.get("params", {}).get("protocolVersion", "2025-06-18")
        return {
            "protocolVersion": asked,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "toy", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call" and GATE:
        with (GATE / "runs").open("a", encoding="utf-8") as runs:
            runs.write("run\n")
        while not (GATE / "gate").exists():
            time.sleep(0.02)
        return {"content": [{"type": "text", "text": "The film is ready: merganser."}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "done"}]}
    return {} if method == "ping" else None


def main():
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        answer = {"jsonrpc": "2.0", "id": request["id"]}
        result = result_of(request)
        if result is None:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        else:
            answer["result"] = result
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
