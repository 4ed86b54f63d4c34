#!/usr/bin/env node
// Starts the binary for this platform, with the same arguments, streams and exit code. It is in this package, or in the
// optional dependency for the platform. Nothing is downloaded.
"use strict";

const { spawn } = require("node:child_process");
const { existsSync } = require("node:fs");
const path = require("node:path");

const platform = `${process.platform}-${process.arch}`;
const file = process.platform === "win32" ? "antiphon.exe" : "antiphon";

function findBinary() {
  const inside = path.join(__dirname, "..", "binaries", platform, file);
  if (existsSync(inside)) return inside;
  const name = (require("../package.json").binaries ?? {})[platform];
  if (!name) return null;
  try {
    return require.resolve(`${name}/bin/${file}`);
  } catch {
    // The package manager has left out optional dependencies, or has installed them for another platform.
    return null;
  }
}

const binary = findBinary();
if (!binary) {
  console.error(`antiphon: this package has no binary for ${platform}. If it was installed without optional`);
  console.error("dependencies, or on another machine, install it again here.");
  process.exit(2);
}

const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
// On a terminal, Ctrl-C reaches the binary by itself. A second SIGINT would stop it at once.
const onTerminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => {
    if (signal !== "SIGINT" || !onTerminal) child.kill(signal);
  });
}
child.on("error", (error) => {
  console.error(`antiphon: ${binary} cannot be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal) {
    for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.removeAllListeners(name);
    process.kill(process.pid, signal);
  } else {
    process.exit(code ?? 1);
  }
});
