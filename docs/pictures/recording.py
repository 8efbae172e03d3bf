"""Records a terminal session as an SVG that plays in a browser: docs/pictures/recording.svg.

    recording.py BUILD

Installs BUILD into a folder of its own, and runs the commands below there, in a terminal.  The output and its times
are real, but pauses are cut to a second.
"""

import html
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import textwrap
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
COLUMNS, LINE, CHAR, LEFT, TOP = 96, 18, 7.85, 14, 40
PAUSE_MOST, TYPING, THINKING = 1.0, 0.025, 0.7
COMMANDS = [
    "cc program.c $(pkg-config --cflags --libs tutti) -o program",
    "tutti-run -n 4 ./program",
    "tutti-run --no-prefix -n 2 tutti-bench --ops all_reduce,pingpong --sizes 4,64K | cut -c1-70",
    "TUTTI_RECORD_DIR=records tutti-run -n 4 ./hangs 2>/dev/null",
    "tutti-trace stuck records",
]
# Rank 2 leaves the loop a step early, and computes.
HANGS = """
#include <tutti/tutti.h>
#include <unistd.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", &(tutti_init_opts){.timeout_ms = 1500}));
    int rank = tutti_get_rank(NULL), steps = rank == 2 ? 40 : 41, status = TUTTI_OK;
    float loss = 0;
    for (int i = 0; i < steps && status == TUTTI_OK; i++)
        status = tutti_all_reduce(tutti_view(&loss, 1), TUTTI_AVG, NULL);
    if (rank == 2) sleep(3);
    if (rank == 0) printf("%s\\n", tutti_last_error());
    tutti_destroy_process_group(NULL);
    return 0;
}
"""


def prepare(build, folder):
    """Installs the build, and writes the programs.  Returns the environment of the session."""
    subprocess.run(["cmake", "--install", build, "--prefix", f"{folder}/usr"], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        program = re.search(r"```c\n(.*?)```", file.read(), re.S)[1]
    for name, text in [("program.c", program), ("hangs.c", HANGS)]:
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    lib = next(root for root, _, files in os.walk(f"{folder}/usr") if "libtutti.so" in files)
    environment = dict(
        os.environ,
        PATH=f"{folder}/usr/bin:{os.environ['PATH']}",
        PKG_CONFIG_PATH=f"{lib}/pkgconfig",
        LD_LIBRARY_PATH=lib,
        COLUMNS=str(COLUMNS),
        TERM="dumb",
    )
    command = "cc hangs.c $(pkg-config --cflags --libs tutti) -o hangs"
    subprocess.run(["bash", "-c", command], cwd=folder, env=environment, check=True)
    return environment


def run(command, folder, environment):
    """Runs a command in a terminal.  Returns its lines, each with the time at which it was complete.

    Standard error is no terminal, because programs write their progress there, over and over in one line.
    """
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", f"stty cols {COLUMNS}; {command}"], cwd=folder, env=environment, stdin=slave, stdout=slave,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    began, text, lines = time.monotonic(), "", []
    while True:
        ready, _, _ = select.select([master], [], [], 120)
        try:
            data = os.read(master, 65536) if ready else b""
        except OSError:
            data = b""
        if not data:
            break
        *whole, text = (text + data.decode()).split("\n")
        lines += [(time.monotonic() - began, line.rstrip("\r")) for line in whole]
    os.close(master)
    errors = process.communicate()[1].decode()
    if errors:
        sys.exit(f"{command}: {errors}")
    return lines


def record(build):
    """Returns the lines of the session: (seconds, is a command, text)."""
    session, at = [], 0.5
    with tempfile.TemporaryDirectory() as folder:
        environment = prepare(build, folder)
        for command in COMMANDS:
            session.append((at, True, command))
            at += TYPING * len(command) + 0.3
            last = 0.0
            for moment, line in run(command, folder, environment):
                at += min(moment - last, PAUSE_MOST)
                last = moment
                for part in textwrap.wrap(line, COLUMNS, drop_whitespace=False) or [""]:
                    session.append((at, False, part))
            at += THINKING
    return session


def draw(session):
    width, height = int(2 * LEFT + CHAR * (COLUMNS + 2)), TOP + LINE * len(session) + 14
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        "<style>text{font:13px 'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre}"
        ".c{fill:#fff;font-weight:bold}.p{fill:#8fbc6a}"
        "@keyframes s{from{visibility:hidden}to{visibility:visible}}"
        ".l{animation:s 1ms both}"
        "@media (prefers-reduced-motion:reduce){.l{animation:none}}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#1f2430"/>',
    ]
    for i, colour in enumerate(["#e06c75", "#e5c07b", "#8fbc6a"]):
        out.append(f'<circle cx="{20 + 18 * i}" cy="18" r="5.5" fill="{colour}"/>')
    for row, (at, is_command, text) in enumerate(session):
        y = TOP + LINE * (row + 0.8)
        shown = html.escape(text)
        if is_command:
            shown = f'<tspan class="p">$ </tspan><tspan class="c">{shown}</tspan>'
        place = f'style="animation-delay:{at:.2f}s" x="{LEFT}" y="{y:.1f}" xml:space="preserve"'
        out.append(f'<text class="l" {place}>{shown}</text>')
    return "\n".join(out + ["</svg>\n"])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(os.path.join(HERE, "recording.svg"), "w", encoding="utf-8") as file:
        file.write(draw(record(os.path.abspath(sys.argv[1]))))


if __name__ == "__main__":
    main()
