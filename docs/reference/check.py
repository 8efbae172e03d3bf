"""Checks that the reference is complete.  Prints what is missing, and exits with 1.

- Each function that the libraries export has a comment in a header, which becomes its manual page.
- The manual pages contain nothing that groff warns about, and the comments nothing that Doxygen does.
- docs/README.md lists every page of docs, and the web site's tables of contents every page of it.
- docs/kubernetes.yaml is a Service and a Job that fit each other, with options that tutti-run has.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

import headers
import pages

DOCS = os.path.join(headers.ROOT, "docs")


def exported():
    """Returns the names of the exported functions, without the suffix of those that bindings call."""
    names = set()
    for name in ["exports.txt", "exports_train.txt"]:
        with open(os.path.join(headers.ROOT, "tests", "abi", name), encoding="utf-8") as file:
            names.update(line.strip() for line in file if line.strip() and not line.startswith("#"))
    return {re.sub("_sized$", "", name) for name in names}


def check_functions(wrong):
    _, made = pages.make_pages()
    documented = {name for page in made for name in page.names if page.summary}
    wrong += [f"{name}: no header has a comment for it" for name in sorted(exported() - documented)]
    for page in made:
        if page.names[0] in pages.OWN_PAGE and not page.summary:
            wrong.append(f"{page.names[0]}: no header has a comment for it")
        if page.names[0] in exported() and re.match(r"[a-z]", page.summary) is None:
            wrong.append(f"{page.names[0]}: the comment does not begin with a verb: {page.summary}")


def check_index(wrong):
    with open(os.path.join(DOCS, "README.md"), encoding="utf-8") as file:
        index = set(re.findall(r"\]\(([\w-]+\.md)", file.read()))
    there = {os.path.basename(path) for path in glob.glob(os.path.join(DOCS, "*.md"))} - {"README.md"}
    wrong += [f"docs/README.md does not list {name}" for name in sorted(there - index)]


def check_site(wrong):
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site.py")
        subprocess.run([sys.executable, script, folder], check=True)
        there = {os.path.relpath(path, folder)[:-3] for path in glob.glob(f"{folder}/**/*.md", recursive=True)}
        with open(os.path.join(folder, "index.md"), encoding="utf-8") as file:
            tables = re.findall(r"```{toctree}\n(.*?)```", file.read(), re.S)
    listed = {line for table in tables for line in table.splitlines()}
    wrong += [f"{name}: no table of contents of the web site has it" for name in sorted(there - listed - {"index"})]


def check_roff(wrong):
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "man.py")
        subprocess.run([sys.executable, script, folder], check=True)
        made = [path for path in glob.glob(os.path.join(folder, "man*", "*")) if os.path.getsize(path) > 60]
        try:
            command = ["groff", "-man", "-Tutf8", "-ww", "-z", *made]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            print("check.py: groff is not there, so the manual pages were not parsed")
            return
        wrong += run.stderr.splitlines()


def check_doxygen(wrong):
    with open(os.path.join(headers.ROOT, "docs", "reference", "Doxyfile"), encoding="utf-8") as file:
        settings = file.read()
    with tempfile.TemporaryDirectory() as folder:
        settings += f"\nOUTPUT_DIRECTORY = {folder}\nGENERATE_HTML = NO\nGENERATE_XML = YES\n"
        try:
            run = subprocess.run(
                ["doxygen", "-"], input=settings, cwd=headers.ROOT, capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            print("check.py: doxygen is not there, so the comments were not parsed by it")
            return
        wrong += run.stderr.splitlines()


def check_manifest(wrong):
    try:
        import yaml
    except ImportError:
        print("check.py: python3-yaml is not there, so docs/kubernetes.yaml was not parsed")
        return
    with open(os.path.join(DOCS, "kubernetes.yaml"), encoding="utf-8") as file:
        service, job = yaml.safe_load_all(file)
    pod, name = job["spec"]["template"]["spec"], job["metadata"]["name"]
    script = "\n".join(pod["containers"][0]["args"])
    if service["spec"]["selector"] != {"job-name": name} or pod["subdomain"] != service["metadata"]["name"]:
        wrong.append("docs/kubernetes.yaml: the Service does not name the Job's pods")
    if f"--nnodes {job['spec']['completions']}" not in script or f"{name}-0.{pod['subdomain']}" not in script:
        wrong.append("docs/kubernetes.yaml: the command has another number of nodes or name than the Job")
    with open(os.path.join(headers.ROOT, "tools", "run", "options_text.c"), encoding="utf-8") as file:
        known = file.read()
    used = set(re.findall(r"--[a-z][a-z-]+", script))
    for option in sorted(used):
        if option not in known and f'"{option[2:]}"' not in known:
            wrong.append(f"docs/kubernetes.yaml: tutti-run has no option {option}")


def main():
    wrong = []
    check_functions(wrong)
    check_index(wrong)
    check_site(wrong)
    check_roff(wrong)
    check_doxygen(wrong)
    check_manifest(wrong)
    print("\n".join(wrong[:50]) or f"{len(exported())} functions have their pages")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
