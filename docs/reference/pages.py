"""The pages of the reference: what the headers' entries become, for man.py and site.py."""

import glob
import os
import re

import headers

EXAMPLES = os.path.join(headers.ROOT, "examples", "reference")

# Types that have a page of their own.  The others are part of the first page whose functions use them.
OWN_PAGE = {
    "tutti_opts", "tutti_tensor", "tutti_device", "tutti_bytes", "tutti_status", "tutti_dtype", "tutti_reduce_op",
    "tutti_kind", "tutti_stats", "tutti_tool", "tutti_store_opts", "tutti_parameter",
}  # fmt: skip
MACROS = {"TUTTI_CHECK", "tutti_view", "tutti_with"}
# Headers for plug-ins and readers of files: no pages for man.
ONLY_SITE = {"backend.h", "op.h", "match.h", "trace.h", "kinds.h"}


class Page:
    def __init__(self, entry, names):
        self.entry, self.names, self.types, self.example = entry, names, [], None
        self.header = entry.section.header
        self.summary = headers.summary(entry)
        self.description, self.errors = headers.split_errors(entry.comment)

    def returns_status(self):
        """True if the functions return a tutti_status."""
        first = self.entry.comment[0] if self.entry.comment else ""
        starts = re.match(r"Return|True|Translate|Describe the|Sets the calling", first)
        functions = self.entry.functions()
        return not starts and any(f.text.startswith("int ") for f in functions)

    def library(self):
        return "-ltutti_train -ltutti" if self.header.name.startswith("train/") else "-ltutti"


class Example:
    """A program of examples/reference, and what it prints on 2 ranks."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.name = os.path.splitext(os.path.basename(path))[0]
        code, _, end = text.rpartition("/* Prints")
        self.code = code.rstrip("\n")
        self.prints = re.findall(r"^ \*     (.*)$", end, re.M)


def read_examples():
    return {example.name: example for example in map(Example, sorted(glob.glob(os.path.join(EXAMPLES, "*.c"))))}


def is_page(entry):
    """True if the entry has a page of its own: functions, documented macros, and the types of OWN_PAGE."""
    if not entry.names() or not any(entry.names()):
        return False
    kind = entry.declarations[0].kind
    if kind == "type":
        return any(name in OWN_PAGE for name in entry.names()) and "{" in entry.declarations[0].text
    return kind == "function" or kind == "macro" and entry.names()[0] in MACROS


def named(declarations):
    """Returns the names in declarations, without their comments."""
    text = re.sub(r"/\*.*?\*/", "", "\n".join(d.text for d in declarations), flags=re.S)
    return re.findall(r"\btutti_\w+", text)


def add_types(pages, types):
    """Adds each type without a page to the first page that names it, in its functions or in its types."""
    for page in pages:
        at = 0
        while at <= len(page.types):
            entry = page.entry if at == 0 else page.types[at - 1]
            for name in named(entry.declarations):
                if name in types and for_site(types[name]) == for_site(page.entry):
                    page.types.append(types.pop(name))
            at += 1


def for_site(entry):
    return entry.section.header.name in ONLY_SITE


def holds_type(entry):
    """True if the entry defines a struct, an enum or a type of functions."""
    return entry.declarations[0].kind == "type" and re.search(r"\{|\(\*", entry.declarations[0].text) is not None


def make_pages():
    """Returns the headers, and the pages in the order of the headers."""
    found, pages, types = headers.read_all(), [], {}
    examples = read_examples()
    for header in found:
        for entry in header.entries():
            if is_page(entry):
                pages.append(Page(entry, entry.names()))
            elif entry.names() and entry.names()[0] and holds_type(entry):
                types[entry.names()[0]] = entry
    add_types(pages, types)
    for page in pages:
        page.example = next((examples.pop(name) for name in page.names if name in examples), None)
    if examples:
        raise ValueError("examples/reference: no function has the name of " + ", ".join(examples))
    return found, pages


def titles(pages):
    """Returns the page of each name: of functions, macros and types."""
    found = {}
    for page in pages:
        for name in page.names + [entry.names()[0] for entry in page.types]:
            found.setdefault(name, page)
    return found
