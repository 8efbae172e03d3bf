"""Writes the sources of the web site for Sphinx: the guides, and the reference from the headers.

    site.py FOLDER [TOOL..]      each TOOL is a program with --help
"""

import os
import re
import shutil
import subprocess
import sys

import headers
import pages

TITLES = {
    "types.h": "Status, devices, tensors",
    "dtypes.h": "Dtypes and reduce ops",
    "kinds.h": "Kinds of operation",
    "store.h": "The store",
    "stats.h": "Counters",
    "sized.h": "Sized functions, for bindings",
    "dlpack.h": "DLPack",
    "train/parameter.h": "Training: parameters",
    "train/sampler.h": "Training: sampler",
    "train/reducer.h": "Training: reducer",
    "train/sharded.h": "Training: sharded optimizer",
    "train/checkpoint.h": "Training: checkpoints",
    "train/mesh.h": "Training: meshes",
    "tool.h": "Tools",
    "trace.h": "Trace files",
    "backend.h": "Plug-ins: backend.h",
    "op.h": "Plug-ins: op.h",
    "match.h": "Plug-ins: match.h",
}
GROUPS = [
    ("Reference", [f"tutti.h#{i}" for i in range(20)] + ["types.h", "dtypes.h", "store.h", "stats.h", "dlpack.h"]),
    ("Reference for training", [name for name in headers.HEADERS if name.startswith("train/")]),
    ("Reference for plug-ins, tools and bindings",
     ["tool.h", "backend.h", "op.h", "match.h", "kinds.h", "trace.h", "sized.h"]),
]  # fmt: skip

CONF = """project = "Tutti"
release = version = "{version}"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Tutti {version}"
highlight_language = "none"
myst_heading_anchors = 4
exclude_patterns = ["docs/benchmarks/*.svg"]
suppress_warnings = ["misc.highlighting_failure"]
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_copy_source = False
html_show_copyright = False
smartquotes_action = "q"
"""

# Space for 100 columns of code.
CSS = """.content { width: 54em; }
.highlight pre { font-size: 0.8em; }
h2 { font-size: 1.6em; }
h3 { font-size: 1.25em; }
"""


# ---- text ----------------------------------------------------------------------------------------------------------


def to_markdown(text, known, own=()):
    """Escapes text and links the names of functions and types."""
    out = []
    for i, part in enumerate(text.split("`")):
        if i % 2 == 1:
            out.append(f"`{part}`")
            continue
        for word in re.split(r"(\btutti_\w+|\bTUTTI_CHECK)", part):
            if word in known and word not in own:
                out.append(f"[{word}]({word})".replace("_", r"\_", word.count("_")))
            else:
                out.append(re.sub(r"([\\*_<>\[\]|~#])", r"\\\1", word))
    return "".join(out)


def write_blocks(blocks, known, own=()):
    lines = []
    for kind, content in blocks:
        if kind == "code":
            lines += ["```c", *content, "```", ""]
        elif kind == "item":
            lines.append("- " + to_markdown(content, known, own))
        else:
            lines += ["", to_markdown(content, known, own), ""]
    return lines + [""]


def write_entry(page, known, level):
    names = page.names
    types = [entry.names()[0] for entry in page.types]
    lines = ["```{index} " + ", ".join(names + types), "```", ""]  # entries come first in the results of a search
    lines += [f"({name})=" for name in names + types]
    lines += [f"{'#' * level} " + ", ".join(names).replace("_", r"\_"), "", "```c"]
    is_type = page.entry.declarations[0].kind == "type"
    shown = [d for d in page.entry.declarations if d.name in names]
    lines += [d.text if is_type else headers.wrap_signature(d.text) for d in shown] + ["```", ""]
    lines += write_blocks(page.description, known, names)
    for where, text in page.errors:
        lines += [f"**Errors{', ' + where if where else ''}**: " + to_markdown(text, known, names), ""]
    for entry in page.types:
        lines += write_blocks(headers.blocks(entry.comment), known, names)
        lines += ["```c", entry.declarations[0].text, "```", ""]
    if page.example is not None:
        lines += ["**Example**", "", "```c", page.example.code, "```", "", "On 2 ranks it prints, in some order:", ""]
        lines += ["```", *page.example.prints, "```", ""]
    return lines


# ---- reference -----------------------------------------------------------------------------------------------------


def write_section(section, made, known, level):
    lines = []
    for note in section.notes:
        lines += write_blocks(headers.blocks(note), known)
    paged = {page.entry for page in made}
    plain = [d for entry in section.entries if entry not in paged for d in entry.declarations]
    constants = [d.text for d in plain if d.kind == "macro" and "(" not in d.text.split(" ")[1]]
    for page in made:
        if page.entry.section is section:
            lines += write_entry(page, known, level)
    if constants:
        lines += [f"{'#' * level} Constants", "", "```c", *constants, "```", ""]
    return lines


def write_header(header, made, known):
    """Returns the pages of a header, by name: one for each section of tutti.h, else one."""
    if header.name == "tutti.h":
        result = {}
        for i, section in enumerate(s for s in header.sections if s.title):
            title = section.title[0].upper() + section.title[1:]
            lines = [f"# {title}", "", "`#include <tutti/tutti.h>`", ""] + write_section(section, made, known, 2)
            result[f"tutti.h#{i}"] = ("-".join(re.findall(r"\w+", section.title.lower())), lines)
        return result
    lines = [f"# {TITLES[header.name]}", "", f"`#include <tutti/{header.name}>`", ""]
    lines += write_blocks(headers.blocks(header.comment), known)
    for section in header.sections:
        if section.title:
            lines += [f"## {section.title[0].upper() + section.title[1:]}", ""]
        lines += write_section(section, made, known, 3 if section.title else 2)
    return {header.name: (re.sub(r"[/.]", "-", header.name[:-2]), lines)}


def write_cplusplus():
    """Returns the page of tutti.hpp: its first comment, and the header itself."""
    with open(os.path.join(headers.INCLUDE, "tutti.hpp"), encoding="utf-8") as file:
        lines = file.read().rstrip("\n").split("\n")
    comment, end = headers.read_comment(lines, 0)
    comment[0] = comment[0].removeprefix("Tutti for C++17: ").capitalize()
    page = ["# C++17", "", "`#include <tutti/tutti.hpp>`", ""] + write_blocks(headers.blocks(comment), {})
    return page + ["## The header", "", "```cpp", *lines[end:], "```"]


def write_tools(tools):
    lines = ["# Command-line tools", "", "What `--help` of each says.", ""]
    for tool in tools:
        said = subprocess.run([tool, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
        lines += [f"## {os.path.basename(tool)}", "", "```", said.rstrip("\n"), "```", ""]
    return lines


def save(folder, name, lines):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines).rstrip("\n") + "\n")


def write_reference(folder, tools):
    """Writes the reference, and returns (title, [pages]) for the table of contents."""
    found, made = pages.make_pages()
    known = pages.titles(made)
    written = {}
    for header in found:
        written.update(write_header(header, made, known))
    for name, lines in written.values():
        save(folder, f"reference/{name}.md", lines)
    overview = ["# Overview", ""] + write_blocks(headers.blocks(found[0].comment)[1:], known)
    save(folder, "reference/overview.md", overview)
    groups = []
    for title, names in GROUPS:
        groups.append((title, [f"reference/{written[name][0]}" for name in names if name in written]))
    groups[0][1].insert(0, "reference/overview")
    save(folder, "reference/cplusplus.md", write_cplusplus())
    groups[0][1].append("reference/cplusplus")
    if tools:
        save(folder, "reference/tools.md", write_tools(tools))
        groups[0][1].append("reference/tools")
    return groups


# ---- guides --------------------------------------------------------------------------------------------------------


def read_index():
    """Returns (title, [pages]) of docs/README.md."""
    groups = []
    with open(os.path.join(headers.ROOT, "docs", "README.md"), encoding="utf-8") as file:
        for line in file:
            if line.startswith("## "):
                groups.append((line[3:].strip(), []))
            if line.startswith("| "):
                names = re.findall(r"\]\(([\w/.-]+)\.md\)", line.split("|")[1])
                groups[-1][1].extend(os.path.normpath(f"docs/{name}") for name in names if name != "../README")
    return groups


def copy_linked(folder, page, text):
    """Copies the files of the tree that a page links to, so that the links work."""
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        path = os.path.normpath(os.path.join(os.path.dirname(page), target))
        source = os.path.join(headers.ROOT, path)
        if "://" not in target and not target.endswith(".md") and os.path.isfile(source):
            os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
            shutil.copy(source, os.path.join(folder, path))


def copy_guides(folder):
    names = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
    for place in ["docs", "docs/benchmarks"]:
        there = sorted(os.listdir(os.path.join(headers.ROOT, place)))
        names += [f"{place}/{name}" for name in there if name.endswith(".md")]
    for name in names:
        with open(os.path.join(headers.ROOT, name), encoding="utf-8") as file:
            text = file.read()
        copy_linked(folder, name, text)
        if name == "README.md":
            name = "index.md"
        text = text.replace("](../README.md", "](../index.md")
        save(folder, name, text.split("\n"))
    return [name[:-3] for name in names if name.startswith("docs/benchmarks/")]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, tools = sys.argv[1], sys.argv[2:]
    benchmarks = copy_guides(folder)
    groups = read_index() + write_reference(folder, tools)
    groups.append(("More", ["docs/README", *benchmarks, "CHANGELOG", "SECURITY"]))
    listed = set()
    with open(os.path.join(folder, "index.md"), "a", encoding="utf-8") as file:
        for title, names in groups:
            names = [name for name in names if not (name in listed or listed.add(name))]
            file.write(f"\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {title}\n\n")
            file.write("\n".join(names) + "\n```\n")
    save(folder, "static/wide.css", [CSS])
    save(folder, "conf.py", [CONF.format(version=headers.version())])


if __name__ == "__main__":
    main()
