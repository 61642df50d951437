#!/usr/bin/env python3
"""How much there is to read: lines, bytes and files by room, and what makes a file or a function hard to take in.

    python3 tests/count_lines.py

Counts every text file that git tracks. A line counts once for each 100 columns that it has begun.
"""
import os
import re
import subprocess

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
LIBRARY = ("base", "sharding", "p2p", "offload", "zero", "integrations")
PARTS = ("p2p/job", "zero/config", "zero/optimizer", "integrations/cli", "integrations/sight",
         "integrations/data", "integrations/torch")
OTHERS = ("bench", "tests", "docs")
COLUMNS = 100
LONG_FUNCTION = 60
SMALL_FILE = 60
INCLUDERS = 3  # of a small file


def tracked():
    """Text files by their path below the root."""
    texts = {}
    for path in subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0"):
        name = path.decode()
        if not name or not os.path.isfile(os.path.join(ROOT, name)):
            continue
        with open(os.path.join(ROOT, name), "rb") as file:
            data = file.read()
        if b"\0" not in data:
            texts[name] = data.decode("utf-8", errors="replace")
    return texts


def line_count(text):
    return sum(max(1, -(-len(line) // COLUMNS)) for line in text.splitlines())


def is_cpp(name):
    return name.endswith((".h", ".cc", ".cu", ".cuh"))


def without_comments(text):
    """C++ in which comments, strings and characters are blanks: lines and braces stay where they are."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.*?)\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def comments(text):
    return "\n".join(re.findall(r"//[^\n]*|/\*.*?\*/", text, re.DOTALL))


def functions(text):
    """(first line, lines) of every function's definition; a lambda belongs to the function around it."""
    code, found, header, depth = without_comments(text), [], 0, 0
    inside = None  # (depth, first line) of the function that is open
    for at, char in enumerate(code):
        if char == "{":
            words = code[header:at]
            begins = words.rstrip().endswith((")", "const", "override", "noexcept")) or re.search(r"\)\s*(->|:[^:])", words)
            if inside is None and begins and not re.match(r"\s*(namespace|class|struct|enum|union)\b", words):
                first = header + len(words) - len(words.lstrip())
                inside = (depth, code.count("\n", 0, first) + 1)
            depth += 1
        elif char == "}":
            depth -= 1
            if inside is not None and depth == inside[0]:
                found.append((inside[1], code.count("\n", 0, at) + 2 - inside[1]))
                inside = None
        if char in "{};" or (char == ":" and code[at - 6:at] in ("public", "rivate")):
            header = at + 1
    return found


def small_files(texts):
    """Files under 60 lines that fewer than three others include; a source counts by its header."""
    includes = re.findall(r'^#include "([^"]+)"', "\n".join(texts[name] for name in texts if is_cpp(name)), re.MULTILINE)
    found = []
    for name, text in texts.items():
        if not is_cpp(name) or not name.startswith(LIBRARY) or line_count(text) >= SMALL_FILE:
            continue
        header = re.sub(r"\.(cc|cu)$", ".h", name)
        own = header in texts and re.sub(r"\.h$", ".cc", header) in texts  # its own source includes it, too
        if header in texts and includes.count(header) - own < INCLUDERS:
            found.append(name)
    return found


def row(label, names, texts):
    lines = sum(line_count(texts[name]) for name in names)
    print(f"{label:<22} {lines:>7} {sum(len(texts[name].encode()) for name in names):>9} {len(names):>5}")


def below(room, texts):
    return [name for name in texts if name.startswith(room + "/")]


def main():
    texts = tracked()
    print(f"{'room':<22} {'lines':>7} {'bytes':>9} {'files':>5}")
    for room in LIBRARY:
        row(room, below(room, texts), texts)
        for part in PARTS:
            if part.startswith(room + "/"):
                row("  " + part, below(part, texts), texts)
    library = [name for name in texts if name.startswith(tuple(room + "/" for room in LIBRARY))]
    row("the library", library, texts)
    for room in OTHERS:
        row(room, below(room, texts), texts)
    cpp = [name for name in library if is_cpp(name)]
    long = sorted(((lines, f"{name}:{first}") for name in cpp for first, lines in functions(texts[name])
                   if lines > LONG_FUNCTION), reverse=True)
    print(f"\nfunctions over {LONG_FUNCTION} lines: {len(long)}")
    for lines, place in long:
        print(f"  {lines:>4}  {place}")
    small = small_files(texts)
    print(f"files under {SMALL_FILE} lines that fewer than {INCLUDERS} include: {len(small)}")
    for name in small:
        print(f"  {line_count(texts[name]):>4}  {name}")
    told = "\n".join(comments(texts[name]) for name in cpp).lower()
    for word in ("whoever", "nobody"):
        print(f'"{word}" in comments:', len(re.findall(rf"\b{word}\b", told)))
    rows = [line for line in texts["docs/glossary.md"].splitlines() if line.startswith("| ")]
    print(f"words in docs/glossary.md: {len(rows) - 2}")  # without the head


if __name__ == "__main__":
    main()
