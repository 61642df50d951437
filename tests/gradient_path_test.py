"""docs/life_of_a_gradient.md: each function is defined in its file and makes the calls that the table names."""

import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "life_of_a_gradient.md")
ROW = re.compile(r"^\| \d+ \| (\S+) \| `([\w:]+)` \| (.*)\|$")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def body_of(source, function):
    """The text of a function, or "": a member may stand in its class, indented by two spaces."""
    owner, _, name = function.rpartition("::")
    outside = re.search(rf"^\S.*\b{re.escape(function)}\((.|\n)*?^}}$", source, re.MULTILINE)
    if outside is not None:
        return outside.group()
    inside = re.search(rf"^class {owner}\b(.|\n)*?^  \S.*\b{name}\((.|\n)*?^  }}$", source, re.MULTILINE)
    return inside.group() if inside is not None else ""


class LifeOfAGradient(unittest.TestCase):
    def test_every_function_is_there_and_makes_its_calls(self):
        rows = [found.groups() for found in map(ROW.match, read(PAGE).splitlines()) if found]
        self.assertGreater(len(rows), 20)
        for path, function, calls in rows:
            with self.subTest(path=path, function=function):
                body = body_of(read(os.path.join(ROOT, path)), function)
                self.assertNotEqual(body, "", "it is not defined there")
                after_name = body.split("{", 1)[1]
                for call in re.findall(r"`(\w+)`", calls):
                    self.assertRegex(after_name, rf"\b{call}\(")

    def test_the_numbers_of_files(self):
        page = read(PAGE)
        paths = {found.group(1) for found in map(ROW.match, page.splitlines()) if found}
        inside = {path for path in paths if path.startswith("p2p/")}
        self.assertIn(f"These are {len(paths - inside)} files outside `p2p/` and {len(inside)} inside.", page)


if __name__ == "__main__":
    unittest.main()
