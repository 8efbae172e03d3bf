"""Writes the manual pages: section 3 from the headers, section 7 from their first comments, section 1 from --help.

    man.py FOLDER [TOOL..]      FOLDER/man1, man3, man7; each TOOL is a program with --help
"""

import os
import re
import subprocess
import sys

import headers
import pages

# The headers' own pages, section 7: the name, and the title of the header's contents.
OVERVIEWS = {
    "tutti.h": ("tutti", "torch.distributed for C"),
    "store.h": ("tutti-store", "the key-value store through which ranks find each other"),
    "sized.h": ("tutti-sized", "functions for bindings, with the sizes of structs"),
    "tool.h": ("tutti-tool", "callbacks for tracers, profilers and counters"),
    "backend.h": ("tutti-backend", "the plug-in interface"),
    "train/sampler.h": ("tutti-sampler", "which samples of a data set each rank takes"),
    "train/reducer.h": ("tutti-reducer", "averages gradients while the backward pass runs"),
    "train/sharded.h": ("tutti-sharded", "an optimizer whose state is divided among the ranks"),
    "train/checkpoint.h": ("tutti-checkpoint", "checkpoints of a sharded optimizer"),
    "train/mesh.h": ("tutti-mesh", "ranks in a grid of named dimensions"),
}

STATUS = (
    "TUTTI_OK (0), or a negative tutti_status.  In the latter case tutti_last_error has the message."
)


def bold(text):
    return f"\\fB{text}\\fP"


class Roff:
    def __init__(self, title, section, known):
        self.title, self.section, self.known = title, section, known
        self.lines = [f'.TH "{title.upper()}" {section} "" "Tutti {headers.version()}" "Tutti"', ".nh", ".ad l"]

    def escape(self, text):
        text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
        return text

    def inline(self, text):
        """Escapes text; sets code in bold, and the names of other pages as references."""
        out = []
        for i, part in enumerate(text.split("`")):
            if i % 2 == 1:
                out.append(bold(self.escape(part)))
                continue
            words = re.split(r"(\btutti_\w+|\bTUTTI_\w+|\btutti-(?:run|info|bench|trace|conformance|store-bench|fake-gpu)\b)", part)
            for k, word in enumerate(words):
                page = self.known.get(word)
                bare = page == (self.title, self.section) or words[k + 1 : k + 2] and words[k + 1].startswith("(")
                section = "" if page is None or bare else f"({page[1]})"
                out.append(self.escape(word) if page is None else bold(self.escape(word)) + section)
        return re.sub(r"^(?=[.'])", r"\\&", "".join(out))

    def heading(self, text):
        self.lines.append(f".SH {text}")

    def text(self, text):
        self.lines += [".PP", self.inline(text)]

    def code(self, lines):
        shown = [re.sub(r"^(?=[.'])", r"\\&", self.escape(line)) or " " for line in lines]
        self.lines += [".PP", ".RS 4", ".nf", *shown, ".fi", ".RE"]

    def blocks(self, blocks):
        for kind, content in blocks:
            if kind == "code":
                self.code(content)
            elif kind == "item":
                self.lines += [".IP \\(bu 2", self.inline(content)]
            else:
                self.text(content)

    def declarations(self, texts):
        self.lines += [".nf"]
        for text in texts:
            for line in text.split("\n"):
                self.lines.append(bold(self.escape(line)) if line else " ")
        self.lines += [".fi"]

    def members(self, text):
        """Writes what each member of a type is for, if its comments say so."""
        found = headers.members(text)
        for code, comment in found if any(comment for _, comment in found) else []:
            if code:
                self.lines += [".TP", bold(self.escape(code)), self.inline(comment) or "\\&"]
            else:
                self.text(comment[0].upper() + comment[1:])

    def write(self, folder):
        path = os.path.join(folder, f"man{self.section}", f"{self.title}.{self.section}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(self.lines) + "\n")


# ---- section 3 -----------------------------------------------------------------------------------------------------


def write_page(page, folder, known, all_pages):
    roff = Roff(page.names[0], 3, known)
    roff.heading("NAME")
    roff.lines.append(roff.escape(", ".join(page.names)) + " \\- " + roff.escape(page.summary))
    roff.heading("SYNOPSIS")
    is_type = page.entry.declarations[0].kind == "type"
    shown = [d for d in page.entry.declarations if d.name in page.names]
    texts = [headers.without_comments(d.text) if is_type else headers.wrap_signature(d.text, 76) for d in shown]
    roff.declarations([f"#include <tutti/{page.header.name}>", "", *texts])
    roff.text(f"Link with {page.library()}.")
    if page.description:
        roff.heading("DESCRIPTION")
        roff.blocks(page.description)
    if is_type:
        roff.heading("MEMBERS")
        roff.members(page.entry.declarations[0].text)
    for entry in page.types:
        text = entry.declarations[0].text
        roff.heading(f'"THE TYPE {entry.names()[0]}"')
        roff.blocks(headers.blocks(entry.comment))
        if headers.members(text):
            roff.members(text)
        else:
            roff.lines.append(".PP")
            roff.declarations([text])
    if page.returns_status():
        roff.heading('"RETURN VALUE"')
        roff.text(STATUS)
    write_errors(roff, page)
    for note in page.entry.section.notes:
        if page.header.name == "tutti.h":
            roff.heading("NOTES") if note is page.entry.section.notes[0] else None
            roff.blocks(headers.blocks(note))
    write_example(roff, page.example)
    roff.heading('"SEE ALSO"')
    near = [other.names[0] for other in all_pages if other.entry.section is page.entry.section and other is not page]
    overview = OVERVIEWS.get(page.header.name, OVERVIEWS["tutti.h"])[0]
    links = [bold(roff.escape(overview)) + "(7)"] + [bold(name) + "(3)" for name in near[:12]]
    roff.lines.append(", ".join(links))
    roff.write(folder)
    for name in page.names[1:] + [entry.names()[0] for entry in page.types]:
        with open(os.path.join(folder, "man3", f"{name}.3"), "w", encoding="utf-8") as file:
            file.write(f".so man3/{page.names[0]}.3\n")


def write_errors(roff, page):
    if not page.errors:
        return
    roff.heading("ERRORS")
    for where, text in page.errors:
        roff.text((where.capitalize() + ": " if where else "") + (text if where else text[0].upper() + text[1:]))
    roff.text("TIMEOUT stands for TUTTI_ERR_TIMEOUT, and so on.  `tutti`(7) has the errors of all operations.")


def write_example(roff, example):
    if example is None:
        return
    roff.heading("EXAMPLE")
    roff.code(example.code.split("\n"))
    roff.text("On 2 ranks it prints, in some order:")
    roff.code(example.prints)


# ---- section 7 -----------------------------------------------------------------------------------------------------


def write_overview(header, folder, known, all_pages):
    name, title = OVERVIEWS[header.name]
    roff = Roff(name, 7, known)
    roff.heading("NAME")
    roff.lines.append(f"{roff.escape(name)} \\- {roff.escape(title)}")
    roff.heading("SYNOPSIS")
    roff.declarations([f"#include <tutti/{header.name}>"])
    roff.heading("DESCRIPTION")
    roff.blocks(headers.blocks(header.comment)[1:] if header.name == "tutti.h" else headers.blocks(header.comment))
    own = [page for page in all_pages if page.header is header]
    if own:
        roff.heading("FUNCTIONS")
        section = None
        for page in own:
            if page.entry.section is not section and page.entry.section.title:
                roff.lines.append(f".SS {roff.escape(page.entry.section.title.capitalize())}")
            section = page.entry.section
            links = ", ".join(map(bold, page.names))
            roff.lines += [".TP", f"{links}(3)", roff.escape(page.summary)]
    roff.heading('"SEE ALSO"')
    if header.name == "tutti.h":
        tools = [bold(roff.escape(n)) + "(1)" for n in sorted(n for n, p in known.items() if p[1] == 1)]
        others = sorted({n for n, _ in OVERVIEWS.values()} - {name} | {"tutti-environment"})
        others = [bold(roff.escape(n)) + "(7)" for n in others]
        roff.lines.append(", ".join(tools + others))
    else:
        roff.lines.append("\\fBtutti\\fP(7)")
    roff.write(folder)


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def write_guide(page, name, title, folder, known):
    """Writes a page of docs as a manual page: its headings, paragraphs and tables."""
    roff = Roff(name, 7, known)
    roff.heading("NAME")
    roff.lines.append(f"{roff.escape(name)} \\- {roff.escape(title)}")
    roff.heading("DESCRIPTION")
    with open(os.path.join(headers.ROOT, "docs", page), encoding="utf-8") as file:
        lines = re.sub(r"\[([^\]]+)\]\(([\w.-]+)(#[\w-]+)?\)", r"\1", file.read()).split("\n")
    in_table = False
    for line in lines[1:]:
        if re.match(r"\|[-|]+\|$", line) or not line:
            in_table = in_table and bool(line)
            roff.lines += [] if line else [".PP"]
        elif line.startswith("#"):
            roff.heading(f'"{roff.escape(line.lstrip("# ").upper())}"')
        elif line.startswith("|"):
            if in_table:
                rest = "; ".join(cells(line)[1:]).replace("*", "")
                roff.lines += [".TP", roff.inline(cells(line)[0]), roff.inline(rest)]
            in_table = True
        else:
            roff.lines.append(roff.inline(line.replace("*", "")))
    roff.heading('"SEE ALSO"')
    roff.lines.append("\\fBtutti\\fP(7)")
    roff.write(folder)


# ---- section 1 -----------------------------------------------------------------------------------------------------


def read_help(tool):
    result = subprocess.run([tool, "--help"], capture_output=True, text=True, timeout=60, check=False)
    if result.returncode != 0 or not result.stdout:
        sys.exit(f"man.py: {tool} --help ended with {result.returncode}: {result.stderr}")
    return result.stdout.rstrip("\n").split("\n")


def write_options(roff, lines):
    """Writes lines "  -n, --name X   text", whose text goes on in deeper lines, and those in between."""
    column = None
    for line in lines:
        option = re.match(r"  +(-.*?)(?:  +(\S.*))?$", line)
        if option:
            roff.lines += [".TP", bold(roff.escape(option.group(1)))]
            column = option.start(2)
            roff.lines.append(roff.inline(option.group(2) or ""))
        elif column is not None and re.match(" {%d,}" % max(column, 3), line):
            roff.lines.append(roff.inline(line.strip()))
        elif re.match(r"  +\S", line):
            roff.lines += [".br", roff.inline(line.strip())]
        else:
            column = None
            roff.lines += [".PP", roff.inline(line)] if line else []


def write_tool(tool, folder, known):
    name, lines = os.path.basename(tool), read_help(tool)
    roff = Roff(name, 1, known)
    at = lines.index("") if "" in lines else 1
    usage, rest = lines[:at], lines[at:]
    while rest and not rest[0]:
        rest.pop(0)
    # A sentence directly below the usage says what the tool does.
    said = [line for line in usage[1:] if not line.startswith(" ")] or rest[:1]
    roff.heading("NAME")
    summary = re.sub(r"\.$", "", re.split(r"(?<=\.) |, with|:$", said[0])[0]) if said else name
    roff.lines.append(f"{roff.escape(name)} \\- {roff.escape(summary[0].lower() + summary[1:])}")
    roff.heading("SYNOPSIS")
    commands = [re.sub(r"^usage: ", "", line) for line in usage if line not in said]
    roff.lines += [".nf", *[bold(roff.escape(line)) for line in commands], ".fi"]
    roff.heading("DESCRIPTION")
    write_options(roff, ([*said, ""] if said and said[0] in usage else []) + rest)
    roff.heading('"SEE ALSO"')
    others = [bold(roff.escape(n)) + "(1)" for n, page in sorted(known.items()) if page[1] == 1 and n != name]
    roff.lines.append(", ".join([*others, bold("tutti") + "(7)"]))
    roff.write(folder)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, tools = sys.argv[1], sys.argv[2:]
    found, made = pages.make_pages()
    made = [page for page in made if page.header.name not in pages.ONLY_SITE or page.names[0] == "tutti_kind"]
    known = {name: (page.names[0], 3) for name, page in pages.titles(made).items()}
    known.update({os.path.basename(tool): (os.path.basename(tool), 1) for tool in tools})
    for page in made:
        write_page(page, folder, known, made)
    for header in found:
        if header.name in OVERVIEWS:
            write_overview(header, folder, known, made)
    write_guide("environment.md", "tutti-environment", "the variables that Tutti reads", folder, known)
    for tool in tools:
        write_tool(tool, folder, known)


if __name__ == "__main__":
    main()
