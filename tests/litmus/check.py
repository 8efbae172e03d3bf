#!/usr/bin/env python3
"""Checks the memory orders of Tutti's lock-free structures (see .ci/litmus, which calls this).

Each *.order file holds tests, which mirror a structure's accesses in the order of the source:

  test NAME
  about A sentence.
  init LOCATION VALUE
  thread NAME
    store ORDER LOCATION VALUE            [| FILE FUNCTION | TEXT]
    load ORDER LOCATION -> REGISTER
    exchange ORDER LOCATION VALUE -> REGISTER
    add ORDER LOCATION VALUE -> REGISTER
    fence ORDER
  never REGISTER=VALUE ..

ORDER is plain, relaxed, acquire, release, acq_rel or seq_cst.  Branches are left out: `never` names the values that a
thread must have read to get there.  An access that is not followed by a text is one of ordinary memory.

Without --herd: each text is found in the function that it names, and each atomic call of the sources with an order
above relaxed is in a test, or in others.txt with a reason.  So no order changes unseen.
With --herd: each `never` is checked by herd7 under RC11 (the C11 model as repaired in C++20) and under arm64's model.
Then each order above relaxed is taken back alone.  At least one of these must make the outcome possible, or the test
would not show anything.
"""
import argparse
import glob
import os
import re
import shlex
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FOLDERS = ("core", "backends", "train", "tools", "include")
WEAK = ("plain", "relaxed")
CALL = re.compile(r"\b(atomic_\w+|__atomic_\w+)\s*\(")
STRONG = re.compile(r"memory_order_(acquire|release|acq_rel|seq_cst|consume)|__ATOMIC_(ACQUIRE|RELEASE|ACQ_REL|SEQ_CST)")


class Access:
    def __init__(self, words, where, text):
        self.kind, self.order = words[0], words[1]
        self.location = words[2] if len(words) > 2 else None
        self.value = words[3] if len(words) > 3 and words[3] != "->" else None
        self.register = words[-1] if "->" in words else None
        self.where, self.text = where, text

    def with_order(self, order):
        other = Access.__new__(Access)
        other.__dict__ = dict(self.__dict__, order=order)
        return other


class Test:
    def __init__(self, name, path):
        self.name, self.path = name, path
        self.about, self.init, self.threads, self.never = "", {}, [], []


def read_tests(path):
    tests = []
    for number, line in enumerate(open(path), 1):
        parts = [part.strip() for part in line.split("|", 2)]
        words = parts[0].split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "test":
            tests.append(Test(words[1], path))
        elif words[0] == "about":
            tests[-1].about = " ".join(words[1:])
        elif words[0] == "init":
            tests[-1].init[words[1]] = words[2]
        elif words[0] == "thread":
            tests[-1].threads.append([])
        elif words[0] == "never":
            tests[-1].never.append(dict(word.split("=") for word in words[1:]))
        elif words[0] in ("store", "load", "exchange", "add", "fence"):
            where, text = (parts[1].split(), parts[2]) if len(parts) == 3 else (None, None)
            tests[-1].threads[-1].append(Access(words, where, text))
        else:
            sys.exit(f"{path}:{number}: unknown word {words[0]}")
    return tests


# ---- the sources -----------------------------------------------------------------------------------------------------


def squeeze(text):
    return re.sub(r"\s+", " ", text)


def read_source(path):
    with open(os.path.join(ROOT, path)) as file:
        return re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)


def body_of(source, function):
    """Returns the text of a function's definition, which ends at the next line that is a brace."""
    for match in re.finditer(r"^(?:[^\s#][^;\n]*\b)?%s\(" % re.escape(function), source, re.M):
        end = source.find("\n}", match.start())
        body = source[match.start():end]
        if "{" in body and ";" not in body[:body.index("{")]:
            return squeeze(body)
    return None


def strong_calls(source):
    for match in CALL.finditer(source):
        depth, at = 1, match.end()
        while depth and at < len(source):
            depth += {"(": 1, ")": -1}.get(source[at], 0)
            at += 1
        call = squeeze(source[match.start():at])
        if STRONG.search(call):
            yield call


def check_sources(tests):
    wrong, covered = [], set()
    for test in tests:
        for access in (access for thread in test.threads for access in thread if access.where):
            path, function = access.where
            body = body_of(read_source(path), function)
            covered.add((path, access.text))
            if body is None:
                wrong.append(f"{test.name}: {path} has no function {function}")
            elif squeeze(access.text) not in body:
                wrong.append(f"{test.name}: {function} in {path} has no `{access.text}`; change the test with the code")
            if access.order not in WEAK and access.order != "seq_cst" and access.order not in access.text.lower():
                wrong.append(f"{test.name}: the test has {access.order} where {path} has `{access.text}`")
    for line in open(os.path.join(HERE, "others.txt")):
        if not line.startswith("#"):
            path, text, _ = (part.strip() for part in line.split(" | ", 2))
            covered.add((path, text))
    for folder in FOLDERS:
        for path in glob.glob(os.path.join(ROOT, folder, "**", "*.[ch]"), recursive=True):
            path = os.path.relpath(path, ROOT)
            for call in strong_calls(read_source(path)):
                if (path, call) not in covered:
                    wrong.append(f"{path}: no test has `{call}`; add one to tests/litmus, or a reason to others.txt")
    return wrong


# ---- the models ------------------------------------------------------------------------------------------------------


def locations_of(test):
    return sorted({a.location for thread in test.threads for a in thread if a.location})


def as_c(name, test, threads, never):
    lines = [f"C {name}", "{ " + " ".join(f"{x}={test.init.get(x, 0)};" for x in locations_of(test)) + " }"]
    where = {}
    for i, thread in enumerate(threads):
        used = sorted({a.location for a in thread if a.location})
        lines.append(f"P{i} ({', '.join('atomic_int* ' + x for x in used)}) {{")
        for a in thread:
            order = "memory_order_" + ("relaxed" if a.order == "plain" else a.order)
            if a.register:
                where[a.register] = i
            if a.kind == "store":
                lines.append(f"  atomic_store_explicit({a.location}, {a.value}, {order});")
            elif a.kind == "load":
                lines.append(f"  int {a.register} = atomic_load_explicit({a.location}, {order});")
            elif a.kind == "exchange":
                lines.append(f"  int {a.register} = atomic_exchange_explicit({a.location}, {a.value}, {order});")
            elif a.kind == "add":
                lines.append(f"  int {a.register} = atomic_fetch_add_explicit({a.location}, {a.value}, {order});")
            else:
                lines.append(f"  atomic_thread_fence({order});")
        lines.append("}")
    condition = " /\\ ".join(f"{where[r]}:{r}={v}" for r, v in never.items())
    return "\n".join(lines + [f"exists ({condition})", ""])


LOADS = {"plain": "LDR", "relaxed": "LDR", "acquire": "LDAPR", "seq_cst": "LDAR"}
STORES = {"plain": "STR", "relaxed": "STR", "release": "STLR", "seq_cst": "STLR"}
SUFFIX = {"relaxed": "", "acquire": "A", "release": "L", "acq_rel": "AL", "seq_cst": "AL"}
FENCES = {"acquire": "DMB ISHLD", "release": "DMB ISH", "acq_rel": "DMB ISH", "seq_cst": "DMB ISH"}


def as_arm64(name, test, threads, never):
    """Uses the instructions that compilers emit, and LDAPR, the weaker of the two for an acquire load."""
    inits, columns, where = [f"{x}={v};" for x, v in test.init.items()], [], {}
    for i, thread in enumerate(threads):
        used = sorted({a.location for a in thread if a.location})
        at = {x: f"X{k + 1}" for k, x in enumerate(used)}
        inits += [f"{i}:{at[x]}={x};" for x in used]
        column, next_register = [], 10
        for a in thread:
            if a.kind == "fence":
                column.append(FENCES[a.order])
                continue
            if a.value is not None:
                column.append(f"MOV W9,#{a.value}")
            if a.register:
                where[a.register], target = (i, next_register), f"W{next_register}"
                next_register += 1
            if a.kind == "store":
                column.append(f"{STORES[a.order]} W9,[{at[a.location]}]")
            elif a.kind == "load":
                column.append(f"{LOADS[a.order]} {target},[{at[a.location]}]")
            else:
                operation = "SWP" if a.kind == "exchange" else "LDADD"
                column.append(f"{operation}{SUFFIX[a.order]} W9,{target},[{at[a.location]}]")
        columns.append(column)
    rows = max(map(len, columns))
    lines = [f"AArch64 {name}", "{", " ".join(inits), "}"]
    lines.append(" " + " | ".join(f"P{i}" for i in range(len(columns))) + " ;")
    for row in range(rows):
        lines.append(" " + " | ".join(column[row] if row < len(column) else "" for column in columns) + " ;")
    condition = " /\\ ".join(f"{where[r][0]}:X{where[r][1]}={v}" for r, v in never.items())
    return "\n".join(lines + [f"exists ({condition})", ""])


def weakened(threads):
    """Yields the threads with one order taken back at a time, and what was taken back."""
    for i, thread in enumerate(threads):
        for k, access in enumerate(thread):
            if access.order in WEAK:
                continue
            other = [access.with_order("relaxed")] if access.kind != "fence" else []
            changed = thread[:k] + other + thread[k + 1:]
            yield threads[:i] + [changed] + threads[i + 1:], f"{access.kind} {access.order} {access.location or ''}"


def run_herd(herd, seen_as, names, model):
    """Returns the names of the tests whose outcome is possible."""
    found = {}
    command = herd + model + [os.path.join(seen_as, name + ".litmus") for name in names]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for name, how in re.findall(r"^Observation (\S+) (Never|Sometimes|Always)", done.stdout, re.M):
        found[name] = how != "Never"
    missing = [name for name in names if name not in found]
    if missing:
        sys.exit(f"herd7 has no answer for {missing[0]}:\n{done.stderr[:3000]}")
    return {name for name in names if found[name]}


MODELS = (("C11", as_c, ["-model", "rc11.cat"]), ("arm64", as_arm64, []))


def check_models(tests, herd, folder, seen_as):
    wrong, idle, n = [], {}, 0
    for label, write, options in MODELS:
        names, about = [], {}
        for test in tests:
            for number, never in enumerate(test.never):
                variants = [(test.threads, None)] + list(weakened(test.threads))
                for k, (threads, taken) in enumerate(variants):
                    name = f"{label}.{test.name}.{number}.{k}".replace(".", "_")
                    with open(os.path.join(folder, name + ".litmus"), "w") as file:
                        file.write(write(name, test, threads, never))
                    names.append(name)
                    about[name] = (test, number, taken)
        possible = set()
        for at in range(0, len(names), 100):
            possible |= run_herd(herd, seen_as, names[at:at + 100], options)
        for name in names:
            test, number, taken = about[name]
            key = (test.name, number)
            if taken is None:
                n += 1
                print(f"{label:6} {test.name:22} never {test.never[number]}: {'POSSIBLE' if name in possible else 'ok'}")
                if name in possible:
                    wrong.append(f"{test.name} ({label}): {test.never[number]} is possible")
            idle.setdefault(key, set())
            if taken is not None and name in possible:
                idle[key].add(taken)
    for test in tests:
        if all(order in WEAK for thread in test.threads for order in (a.order for a in thread)):
            continue  # it needs no order, only that an access is atomic
        for number in range(len(test.never)):
            if not idle[(test.name, number)]:
                wrong.append(f"{test.name}: no single order is needed for outcome {number}, so the test shows nothing")
    print(f"{n} outcomes are impossible" if not wrong else f"{len(wrong)} faults")
    return wrong


def main():
    parser = argparse.ArgumentParser(description="Checks the memory orders of lock-free structures.")
    parser.add_argument("--herd", help="the command of herd7")
    parser.add_argument("--folder", help="where the litmus tests are written, an existing folder")
    parser.add_argument("--seen-as", help="that folder's path for herd7, if it runs in a root of its own")
    options = parser.parse_args()
    tests = [test for path in sorted(glob.glob(os.path.join(HERE, "*.order"))) for test in read_tests(path)]
    wrong = check_sources(tests)
    if options.herd and not wrong:
        wrong = check_models(tests, shlex.split(options.herd), options.folder, options.seen_as or options.folder)
    for text in wrong:
        print(text)
    if not wrong and not options.herd:
        print(f"{len(tests)} tests name the orders of the sources")
    sys.exit(1 if wrong else 0)


main()
