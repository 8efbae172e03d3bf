"""Reads Tutti's public headers: the comments, and what they describe.

The headers follow rules that CONTRIBUTING.md states, so that this file needs no C parser:

- The first comment of a header describes the header.
- "---- title ----" begins a section.  A comment before an empty line belongs to the section.
- A comment directly above a declaration describes it.  Declarations directly below without a comment of their own share
  it, and so do inline functions after an empty line.
"""

import os
import re

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
INCLUDE = os.path.join(ROOT, "include", "tutti")

# In the order of reading.  The last ones are for plug-ins and tools.
HEADERS = [
    "tutti.h",
    "types.h",
    "dtypes.h",
    "kinds.h",
    "store.h",
    "stats.h",
    "sized.h",
    "dlpack.h",
    "train/parameter.h",
    "train/sampler.h",
    "train/reducer.h",
    "train/sharded.h",
    "train/checkpoint.h",
    "train/mesh.h",
    "tool.h",
    "trace.h",
    "backend.h",
    "op.h",
    "match.h",
]


ERRORS = re.compile(r"(?:^|(?<=[.:;)] ))(?:Other errors|Errors)(, [a-z ]+| of all)?: ")


class Declaration:
    def __init__(self, kind, name, text):
        self.kind, self.name, self.text = kind, name, text  # kind: function, type or macro


class Entry:
    """A comment and the declarations that share it."""

    def __init__(self, section, comment):
        self.section, self.comment, self.declarations = section, comment, []

    def functions(self):
        return [d for d in self.declarations if d.kind == "function" and not d.name.endswith("_sized")]

    def names(self):
        """Returns the names, without the _sized forms that bindings call."""
        return [d.name for d in self.declarations if not d.name.endswith("_sized")]


class Section:
    def __init__(self, header, title):
        self.header, self.title, self.notes, self.entries = header, title, [], []


class Header:
    def __init__(self, name):
        self.name, self.comment, self.sections = name, [], [Section(self, "")]

    def entries(self):
        return [entry for section in self.sections for entry in section.entries]


# ---- comments ------------------------------------------------------------------------------------------------------


def read_comment(lines, at):
    """Returns the lines of the comment that begins at lines[at], without its marks, and where it ends."""
    text = []
    while True:
        line = lines[at]
        end = line.rstrip().endswith("*/")
        line = line.rstrip()[:-2] if end else line.rstrip()
        text.append(re.sub(r"^(/\*| \*)( |$)", "", line).rstrip())
        at += 1
        if end:
            while text and not text[-1]:
                text.pop()
            return text, at


def blocks(lines):
    """Splits a comment into ("text", str), ("item", str) and ("code", [lines])."""
    found = []
    for line in lines:
        code = line.startswith("    ")
        if not line:
            if found and found[-1][0] == "code":
                found[-1][1].append("")
            else:
                found.append(("end", ""))
        elif code and found and found[-1][0] == "code":
            found[-1][1].append(line)
        elif code:
            found.append(("code", [line]))
        elif line.startswith("- "):
            found.append(("item", line[2:]))
        elif found and found[-1][0] in ("text", "item") and (found[-1][0] == "text" or line.startswith("  ")):
            found[-1] = (found[-1][0], found[-1][1] + " " + line.strip())
        elif re.match(r"  \S", line) and not found:
            found.append(("code", [line]))
        else:
            found.append(("text", line.strip()))
    result = []
    for kind, content in found:
        if kind == "code":
            while not content[-1]:
                content.pop()
            indent = min(len(line) - len(line.lstrip()) for line in content if line)
            content = [line[indent:] for line in content]
        if kind != "end":
            result.append((kind, re.sub(r" +", " ", content) if kind != "code" else content))
    return result


def split_errors(lines):
    """Returns the blocks of a comment without its sentences on errors, and those sentences."""
    description, errors = [], []
    for kind, content in blocks(lines):
        match = None if kind == "code" else ERRORS.search(content)
        if match is None:
            description.append((kind, content))
            continue
        if content[: match.start()].strip():
            description.append((kind, content[: match.start()].strip()))
        errors.append((match.group(1) or "").strip(", ") + "\0" + content[match.end() :])
    return description, [tuple(error.split("\0", 1)) for error in errors]


def summary(entry):
    """Returns the first sentence of a comment, as a part of a sentence."""
    text = next((content for kind, content in blocks(entry.comment) if kind != "code"), "")
    short = re.sub(r"\s*\([^()]*\)", "", text)
    sentence = re.split(r"(?<=[^.])\.(?: |$)|:$|;|: ", short, maxsplit=1)[0].strip()
    return sentence[0].lower() + sentence[1:] if re.match(r"[A-Z]([a-z]| )", sentence) else sentence


# ---- declarations --------------------------------------------------------------------------------------------------


def read_declaration(lines, at):
    """Returns the text of the declaration at lines[at], without a body, and where it ends."""
    text, line = [], lines[at]
    braces = re.match(r"(typedef )?(struct|enum|union)\b.*\{", line) is not None
    body = line.startswith("static ")
    while True:
        line = lines[at]
        at += 1
        if body and line == "{":
            while lines[at] != "}":
                at += 1
            return text, at + 1
        if not line.startswith("#"):
            text.append(line)
        if braces and re.match(r"\}.*;$", line) or not braces and not body and line.endswith(";"):
            return text, at
        if braces and len(text) == 1 and re.search(r"\}.*;$", line):
            return text, at


def declare(text):
    """Makes a Declaration of the lines of one."""
    joined = re.sub(r"\s*__attribute__\(\((format|access)\(.*?\)\)\)( /\*.*?\*/)?", "", "\n".join(text))
    joined = re.sub(r"^(TUTTI_API|static inline)\s+", "", joined)
    joined = re.sub(r"\n\s*;$", ";", joined)
    if text[0].startswith("static "):
        joined += ";"
    pointer = re.match(r"typedef .*?\(\*(\w+)\)\(", joined)
    struct = re.match(r"(?:typedef )?(?:struct|enum|union) (\w+)", joined)
    if pointer:
        return Declaration("type", pointer.group(1), joined)
    if "{" in joined or joined.startswith("typedef"):
        named = re.search(r"\}? ?(\w+);$", joined) if joined.startswith("typedef") else None
        return Declaration("type", named.group(1) if named else struct.group(1) if struct else "", joined)
    joined = re.sub(r"\n\s+", " ", joined)
    function = re.match(r"[\w *]*?\b(\w+)\(", joined)
    return Declaration("function", function.group(1), joined) if function else None


def without_comments(text):
    return re.sub(r"\n\n+", "\n", re.sub(r"[ \t]*/\*.*?\*/", "", text, flags=re.S))


def members(text):
    """Returns (declaration, comment) of each member of a struct or enum.  A comment of its own line has no declaration,
    unless a member without a comment follows."""
    found, pending = [], ""
    text = re.sub(r",\n +(?=[^/\n]*\);)", ", ", text)
    for code, comment in re.findall(r"^ +([^/\n][^\n]*?)?[ \t]*(?:/\*(.*?)\*/)?$", text, re.M | re.S):
        comment = " ".join(re.sub(r"\n\s*\*? ?", " ", comment).split())
        if code and not comment:
            comment, pending = pending, ""
        if pending:
            found.append(("", pending))
        pending = "" if code else comment
        if code:
            found.append((code, comment))
    return found


def wrap_signature(text, width=88):
    """Breaks a long declaration of a function after a comma, as the headers do."""
    if len(text) <= width:
        return text
    indent = text.index("(") + 1
    if indent > 50:
        indent = 4
    lines, line = [], ""
    for part in re.findall(r"[^,]+,?", text):
        if line and len(line + part) > width:
            lines.append(line)
            line = " " * indent + part.strip()
        else:
            line += part
    return "\n".join(lines + [line])


# ---- headers -------------------------------------------------------------------------------------------------------


def read_macro(lines, at):
    first = lines[at]
    while lines[at].endswith("\\"):
        at += 1
    match = re.match(r"#define (\w+(?:\([^)]*\))?)(.*)", first)
    return match.group(1), match.group(2).rstrip("\\").strip(), at + 1


class Reader:
    def __init__(self, name):
        self.header, self.comment, self.cplusplus = Header(name), None, 0
        self.is_below = False  # no empty line since the last declaration
        with open(os.path.join(INCLUDE, name), encoding="utf-8") as file:
            self.lines = file.read().split("\n")

    def add(self, declaration, is_inline=False):
        section = self.header.sections[-1]
        last = section.entries[-1] if section.entries else None
        shares = declaration.kind != "type" and last is not None and last.declarations[-1].kind == declaration.kind
        shares = shares and (self.is_below or is_inline)
        self.is_below = True
        if self.comment is None and shares and last.comment:
            last.declarations.append(declaration)
            return
        entry = Entry(section, self.comment or [])
        entry.declarations.append(declaration)
        section.entries.append(entry)
        self.comment = None

    def read_comment_at(self, at):
        text, at = read_comment(self.lines, at)
        title = re.match(r"-+ (.*?) -+$", text[0])
        if title:
            self.header.sections.append(Section(self.header, title.group(1)))
        elif at < len(self.lines) and not self.lines[at].strip():
            self.header.sections[-1].notes.append(text)
        else:
            self.comment = text
        return at

    def read_preprocessor(self, at):
        """Skips what only C++ sees, and returns the position after a directive."""
        line = self.lines[at]
        if line == "#ifdef __cplusplus":
            while not re.match(r"#(else|endif)", self.lines[at]):
                at += 1
            return at + 1
        if line == "#else" and self.cplusplus:
            while self.lines[at] != "#endif":
                at += 1
            self.cplusplus = 0
            return at + 1
        if line == "#ifndef __cplusplus":
            self.cplusplus = 1
        if not line.startswith("#define"):
            while self.lines[at].endswith("\\"):
                at += 1
            return at + 1
        name, value, end = read_macro(self.lines, at)
        plain = re.match(r"\w+", name).group(0)
        constant = value and value != "\\" and "(" not in name and not re.search("_H$|_API$", plain)
        if self.comment or constant:
            self.add(Declaration("macro", plain, f"#define {name}" + (f" {value}" if "(" not in name else "")))
        self.comment = None
        return end

    def read(self):
        self.header.comment, at = read_comment(self.lines, 0)
        title = re.sub(r"^Tutti(?: training)?: (\w)", lambda match: match[1].upper(), self.header.comment[0])
        self.header.comment[0] = title
        while at < len(self.lines):
            line = self.lines[at]
            if line.startswith("/* clang-format"):
                at += 1
            elif line.startswith("/*"):
                at = self.read_comment_at(at)
            elif line.startswith("#"):
                at = self.read_preprocessor(at)
            elif re.match(r"(TUTTI_API|static|typedef|struct|enum|union)\b", line):
                text, at = read_declaration(self.lines, at)
                self.add(declare(text), line.startswith("static "))
            else:
                self.is_below = self.is_below and bool(line.strip())
                if line.strip() and not re.match(r"\s|\}|TUTTI_\w+\(|static_assert|extern", line):
                    raise ValueError(f"{self.header.name}:{at + 1}: what is this: {line}")
                at += 1
        return self.header


def read_all():
    return [Reader(name).read() for name in HEADERS]


def version():
    """Returns the version in tutti.h."""
    with open(os.path.join(INCLUDE, "tutti.h"), encoding="utf-8") as file:
        return ".".join(re.findall(r"#define TUTTI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", file.read()))
