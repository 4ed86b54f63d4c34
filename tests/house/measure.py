#!/usr/bin/env python3
"""Prints how legible the code is, in figures: names, doc comments, reasons beside the code, rooms, circles,
functions that only pass on, files, packages, configuration keys.

    python3 tests/house/measure.py [--list] [FOLDER …]

FOLDER is a source folder; by default those of the gateway, the core and the ledger. With `--list` every place behind a
figure is printed too.
Unit tests at the end of a file (`#[cfg(test)] mod tests`) are left out.
The architecture test (`cargo test --test it architecture`) holds what a test can hold.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

OPENERS = re.compile(r"(What|Who|Whose|Which|Whom|Whether|Where|When|How|Why|Of|As|None)\b")
FUNCTION = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+|async\s+|unsafe\s+|extern\s+\"C\"\s+)*fn\s+(\w+)")
TYPE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|type|union)\s+([A-Z]\w*)")
INHERENT = re.compile(r"^impl\b(?:<[^{]*?>)?\s+(?:[a-z_]\w*::)*([A-Z]\w*)[^{]*\{")
# Code lines of a file that may belong elsewhere.
SMALL = 20
# The source folders, the lowest package first.
FOLDERS = [pathlib.Path(folder) for folder in ("crates/core/src", "crates/ledger/src", "src")]
# Names that every module may have: the module says which one is meant.
SHARED = {"Error", "Args", "Settings"}
# Rooms whose bodies must give their reasons.
REASONED = ("proxy", "repair", "conversation/pairing")


def without_tests(text):
    """Cuts off the unit tests at the end of a file."""
    return re.split(r"^#\[cfg\(test\)\]\s*\nmod ", text, maxsplit=1, flags=re.M)[0]


# A function of an inherent impl or of a module whose body is one call that gets nothing but the function's own arguments.
HEAD = re.compile(
    r"^( *)(?:pub(?:\([^)]*\))? )?(?:const |async )*fn (\w+)(?:<[^{]*?>)?\(([^{}]*?)\)(?: -> [^{]+?)?(?:\s+where[^{]*?)?\s*"
    r"\{\s*([^{};|]+?)\s*\}$",
    re.M,
)
ONE_CALL = re.compile(r"(?:self|[\w:]+)(?:\.\w+)*(?:\.|::)?\w*\(([^()]*)\)(?:\.await)?")
TRAIT_IMPL = re.compile(r"^impl\b[^{;]*? for [^{;]*\{.*?^\}$", re.M | re.S)


class File:
    def __init__(self, root, path):
        self.path = path.relative_to(root).as_posix()
        self.lines = without_tests(path.read_text(encoding="utf-8")).splitlines()

    def code(self):
        return [line for line in self.lines if line.strip() and not line.strip().startswith("//")]

    def reasons(self):
        return [line for line in self.lines if re.match(r"\s*//(?![/!])", line)]

    def found(self, pattern):
        for number, line in enumerate(self.lines, 1):
            if match := pattern.match(line):
                yield number, match.group(1)

    def passing_on(self):
        """Functions that only pass on: the line, the name, and the lines from the documentation to the end."""
        text = "\n".join(self.lines)
        # What a trait demands is no choice.
        text = TRAIT_IMPL.sub(lambda found: "\n" * found.group().count("\n"), text)
        for found in HEAD.finditer(text):
            _, name, parameters, body = found.groups()
            names = set(re.findall(r"(\w+)\s*:", parameters)) | {"self"}
            call = ONE_CALL.fullmatch(body)
            if call is None or not names.issuperset(map(argument_name, filter(str.strip, call.group(1).split(",")))):
                continue
            # A function without arguments names a constant, or makes a default.
            if names == {"self"} and not body.startswith("self."):
                continue
            at = text.count("\n", 0, found.start()) + 1
            above = 0
            while at - 2 - above >= 0 and re.match(r"\s*(///|#\[)", self.lines[at - 2 - above]):
                above += 1
            yield at, name, above + found.group().count("\n") + 1

    def associated_types(self):
        """Names of `type X = …;` inside an impl: they belong to the trait."""
        return {match.group(1) for line in self.lines if (match := re.match(r"\s+type ([A-Z]\w*)", line))}

    def openings(self):
        """First lines of doc comments."""
        before = ""
        for number, line in enumerate(self.lines, 1):
            text = line.strip()
            if text.startswith("///") and not before.startswith("///"):
                yield number, text[3:].strip()
            before = text


def argument_name(argument):
    """The name of a borrowed argument, or `self` for a field of it."""
    name = argument.strip().removeprefix("&").removeprefix("mut ")
    return "self" if re.fullmatch(r"self(\.\w+)*", name) else name


def module_of(path):
    """The module of a file inside its folder: `a/b.rs` is `b`, `a/b/mod.rs` is `b`."""
    stem = path.removesuffix(".rs").removesuffix("/mod")
    return stem


def circles(files):
    """Circles among the modules of one folder, each once."""
    folders = collections.defaultdict(dict)
    modules = {module_of(file.path) for file in files}
    for file in files:
        module = module_of(file.path)
        parts = module.split("/")
        for used in used_modules(file, parts):
            # What a nested module imports counts for each folder that both are in.
            for depth in range(1, min(len(parts), len(used))):
                if parts[:depth] != used[:depth]:
                    break
                folder, name, other = "/".join(parts[:depth]), parts[depth], used[depth]
                if name != other and f"{folder}/{other}" in modules:
                    folders[folder].setdefault(name, set()).add(other)
    found = set()
    for folder, graph in folders.items():
        for component in components(graph):
            if len(component) > 1:
                found.add(f"{folder}: " + " – ".join(sorted(component)))
    return sorted(found)


def used_modules(file, parts):
    """Paths that a file names, as lists of modules from the crate's root."""
    code = "\n".join(file.code())
    paths = [path for tree in re.findall(r"\buse\s+([^;]+);", code) for path in flattened(tree)]
    rest = re.sub(r"\buse\s+[^;]+;", "", code)
    paths += [match.split("::") for match in re.findall(r"(?<![\w:])(?:crate|super|self)(?:::\w+)+", rest)]
    for path in paths:
        if path[0] == "crate":
            yield path[1:]
        elif path[0] == "self":
            yield parts + path[1:]
        elif path[0] == "super":
            ups = next((at for at, name in enumerate(path) if name != "super"), len(path))
            yield parts[: len(parts) - ups] + path[ups:]


def flattened(tree):
    """The paths of one use tree: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    tree = re.sub(r"\s+", " ", tree).strip()
    head, brace, inside = tree.partition("{")
    names = [name.strip() for name in head.split("::") if name.strip()]
    if not brace:
        return [[name.split(" as ")[0] for name in names]]
    inside = inside.rsplit("}", 1)[0]
    items, depth, item = [], 0, ""
    for letter in inside + ",":
        if letter == "," and depth == 0:
            if item.strip():
                items.append(item)
            item = ""
            continue
        depth += {"{": 1, "}": -1}.get(letter, 0)
        item += letter
    return [names + path for item in items for path in flattened(item)]


def components(graph):
    """Strongly connected components."""
    index, low, stack, on, out, counter = {}, {}, [], set(), [], [0]

    def visit(node):
        index[node] = low[node] = counter[0]
        counter[0] += 1
        stack.append(node)
        on.add(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = set()
            while True:
                other = stack.pop()
                on.discard(other)
                component.add(other)
                if other == node:
                    break
            out.append(component)

    for node in list(graph):
        if node not in index:
            visit(node)
    return out


def imports_between_rooms(files):
    """The rooms of a package with the rooms that each imports."""
    rooms = {file.path.split("/")[0].removesuffix(".rs") for file in files} - {"lib", "main"}
    found = {room: set() for room in rooms}
    for file in files:
        own = file.path.split("/")[0].removesuffix(".rs")
        code = "\n".join(file.code())
        for match in re.finditer(r"\bcrate::(\{)?", code):
            rest, depth, item, heads = code[match.end():], 0, "", []
            if not match.group(1):
                heads.append(rest[:60])
                rest = ""
            for letter in rest:
                if letter == "}" and depth == 0:
                    break
                depth += {"{": 1, "}": -1}.get(letter, 0)
                if letter == "," and depth == 0:
                    heads.append(item)
                    item = ""
                elif depth == 0:
                    item += letter
            names = {match.group(1) for head in [*heads, item] if (match := re.match(r"\s*(\w+)", head))}
            if own in found:
                found[own] |= (names & rooms) - {own}
    return found


def floors(imports):
    """The length of the longest chain of rooms of which each imports the next."""
    height = {}

    def of(room):
        if room not in height:
            height[room] = 0
            height[room] = 1 + max((of(other) for other in imports[room]), default=0)
        return height[room]

    return max(map(of, imports), default=0)


ENUM = re.compile(r"^(?:pub(?:\([^)]*\))? )?enum (\w+)[^{]*\{\n(.*?)^\}", re.M | re.S)
BODY = re.compile(
    r"^( *)(?:pub(?:\([^)]*\))? )?(?:const |async )*fn (\w+)[^;{]*\{\n(.*?)^\1\}$", re.M | re.S
)


def twins(files):
    """Returns pairs of enums with the same variants, all without data: one idea with two homes."""
    homes = collections.defaultdict(list)
    for file in files:
        for name, body in ENUM.findall("\n".join(file.lines) + "\n"):
            variants = re.findall(r"^    ([A-Z]\w*)(?: = [^,]+)?,", body, re.M)
            if len(variants) > 1 and not re.search(r"^    [A-Z]\w*[({ ](?!=)", body, re.M):
                homes[frozenset(variants)].append(f"{file.path} {name}")
    return [places for places in homes.values() if len(places) > 1]


def chains(files):
    """Returns names whose definitions call another of the same name on something else, with the number of such links."""
    links = collections.Counter()
    for file in files:
        # What a trait demands of each implementation is no chain.
        for _, name, body in BODY.findall(TRAIT_IMPL.sub("", "\n".join(file.lines) + "\n")):
            calls = re.findall(rf"([\w.()\]]*)[.:]{name}\(", body)
            if "_" in name and any(not call.endswith("self") for call in calls):
                links[name] += 1
    return {name: count + 1 for name, count in links.items() if count > 1}


CACHE = re.compile(r"DigestCache::(?:<[^>]*>::)?(?:new|with_byte_limit)\(")
QUEUE = re.compile(r"\b(?:mpsc::channel|mpsc::unbounded_channel)(?:::<[^>]*>)?\(")
# A call that commits what no request waits for.
WRITER = re.compile(r"\bcommit_each\(")
# The sources of what is remembered between requests.
REMEMBERING = ("recall/", "late/", "keys/profiles/shared_cooldowns/", "proxy/fact_memory.rs", "ledger/", "table/", "writer/")
# The homes of memory in front of the ledger, and of writes in the background.
HOMES = ("table/", "writer/")
# The reason of each cache and queue outside of them.
KEPT = {
    "late/compactions/mod.rs": "a write adds to what the record has, and replaces nothing",
    "late/readers.rs": "a read extends the life of its record, which a row of a table does not",
    "late/calls/mod.rs": "marks of this process, which have no record",
    "ledger/postgres/mod.rs": "the engine's own commits",
    "ledger/sqlite/mod.rs": "the engine's own commits",
    "proxy/fact_memory.rs": "what a caller's facts mean together; the facts are a table",
    "recall/taught_memory.rs": "the mends of a caller's facts, joined; those that no success has proven are no facts yet",
    "recall/appended_texts.rs": "texts of requests that wait for their provider, whatever a read of the ledger finds",
    "recall/object_owners.rs": "ids that were just looked up in vain, for a shared ledger that is asked twice",
    "recall/response_chains.rs": "callers that continue from responses, and chains that wait for a read of their parent",
}


def remembering(files, pattern):
    """Returns the places of a cache or a queue for what is remembered."""
    inside = [file for file in files if file.path.startswith(REMEMBERING)]
    return [f"{file.path}:{at}" for file in inside for at, line in enumerate(file.lines, 1) if pattern.search(line)]


def keys():
    """The keys of the configuration, and the old ones that are still read."""
    text = "".join(path.read_text(encoding="utf-8") for path in pathlib.Path("src/config/file").glob("*.rs"))
    # A row whose type is a section is a table, not a key.
    rows = [row for row in re.findall(r"^        pub \w+: ([^;]*);$", text, re.M) if "Section" not in row]
    old = sum(",\n            old(" in row or ", old(" in row for row in rows)
    return f"{len(rows) - old}, and {old} old ones"


def packages():
    """The packages that cargo compiles for a release build on this machine, with those for build scripts and macros."""
    tree = ["cargo", "tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]
    ran = subprocess.run(tree, capture_output=True, text=True, check=False)
    if ran.returncode:
        return "unknown: cargo tree failed"
    return len({line.removesuffix(" (*)") for line in ran.stdout.splitlines() if line.strip()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", default=FOLDERS, type=pathlib.Path)
    parser.add_argument("--list", action="store_true", help="print every place behind a figure")
    options = parser.parse_args()
    by_folder = {root: [File(root, path) for path in sorted(root.rglob("*.rs"))] for root in options.folders}
    for root, inside in by_folder.items():
        if not inside:
            sys.exit(f"no Rust files in {root}: run this in the root of the repository")
    files = [file for inside in by_folder.values() for file in inside]

    functions = [(file, at, name) for file in files for at, name in file.found(FUNCTION)]
    short = [found for found in functions if "_" not in found[2]]
    types = collections.defaultdict(list)
    for file in files:
        skip = file.associated_types()
        for at, name in file.found(TYPE):
            if name not in skip:
                types[name].append(f"{file.path}:{at}")
    shared = {name: places for name, places in types.items() if len(places) > 1 and name not in SHARED}
    homes = {name: {place.split(":")[0] for place in places} for name, places in types.items()}
    foreign = [
        f"{file.path}:{at} {name}"
        for file in files
        for at, name in file.found(INHERENT)
        if " for " not in file.lines[at - 1] and name in homes and file.path not in homes[name]
    ]
    openings = [(file, at, text) for file in files for at, text in file.openings()]
    asked = [found for found in openings if OPENERS.match(found[2])]
    rounds = circles(files)
    passing = [(file, *found) for file in files for found in file.passing_on()]
    small = [file for file in files if len(file.code()) <= SMALL]

    alike, chained = twins(files), chains(files)
    caches, queues = remembering(files, CACHE), remembering(files, QUEUE)
    at_home = [place for place in caches + queues if place.startswith(HOMES)]
    unexplained = [place for place in caches + queues if place not in at_home and place.split(":")[0] not in KEPT]
    engines = ("ledger/", "telemetry/measured_ledger.rs")
    writers = {file.path for file in files if not file.path.startswith(engines) for line in file.code() if WRITER.search(line)}

    def share(part, whole):
        return 100 * len(part) / max(1, len(whole))

    print(f"code lines                                   {sum(len(file.code()) for file in files)}")
    for root, inside in by_folder.items():
        imports = imports_between_rooms(inside)
        edges = sum(map(len, imports.values()))
        place = f"{root.as_posix()}: rooms, imports, floors"
        print(f"{place:<45}{len(imports)}, {edges}, {floors(imports)} ({sum(len(file.code()) for file in inside)} lines)")
    conditional = sum(line.count("cfg(") for file in files for line in file.code())
    print(f"conditions on the build (`cfg`)              {conditional}")
    print(f"keys of the configuration                    {keys()}")
    print(f"functions with one-word names                {share(short, functions):.1f} % ({len(short)} of {len(functions)})")
    print(f"type names that stand for more than one type {len(shared)} (of {len(types)} names)")
    print(f"doc comments that open with a question word  {share(asked, openings):.1f} % ({len(asked)} of {len(openings)})")
    print(f"inherent impl blocks in another file         {len(foreign)}")
    print(f"functions that only pass on                  {len(passing)} ({sum(lines for *_, lines in passing)} lines)")
    print(f"caches, queues of what is remembered         {len(caches)}, {len(queues)} ({len(at_home)} in table and writer)")
    print(f"of the others, those without a reason        {len(unexplained)}")
    print(f"background writers                           {len(writers)}")
    print(f"twin enums                                   {len(alike)}")
    print(f"names with more than 2 definitions in a chain {len(chained)}")
    print(f"files                                        {len(files)} ({len(small)} of up to {SMALL} code lines)")
    print(f"packages of a Linux release build            {packages()}")
    print(f"import circles inside folders                {len(rounds)}")
    for room in REASONED:
        inside = [file for file in files if file.path.startswith(room + "/")]
        code, reasons = sum(len(file.code()) for file in inside), sum(len(file.reasons()) for file in inside)
        print(f"plain comments per 100 code lines, {room:<20}{100 * reasons / max(1, code):.1f}".rstrip())
    if options.list:
        for name, places in sorted(shared.items()):
            print(f"type {name}: {', '.join(places)}")
        for file, at, text in asked:
            print(f"doc {file.path}:{at} {text}")
        for place in caches:
            print(f"cache {place} {KEPT.get(place.split(':')[0], '')}")
        for place in queues:
            print(f"queue {place} {KEPT.get(place.split(':')[0], '')}")
        for places in alike:
            print(f"twins {', '.join(places)}")
        for name, count in sorted(chained.items()):
            print(f"chain {name}: {count} definitions")
        for place in foreign:
            print(f"impl {place}")
        for circle in rounds:
            print(f"circle {circle}")
        for file, at, name, lines in passing:
            print(f"passes on {file.path}:{at} {name} ({lines} lines)")
        for file in small:
            print(f"small {file.path} ({len(file.code())} lines)")


if __name__ == "__main__":
    main()
