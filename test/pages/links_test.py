#!/usr/bin/env python3
"""links_test.py: the pages' links lead somewhere, and their pictures are legible on light and dark pages.

usage: links_test.py
"""
import os
import re
import subprocess
import unittest
import urllib.parse
import xml.etree.ElementTree

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SVG = "{http://www.w3.org/2000/svg}"


def read(name):
    with open(os.path.join(REPO, name), encoding="utf-8") as f:
        return f.read()


def pages():
    found = []
    for folder, folders, files in os.walk(REPO):
        folders[:] = [f for f in folders if not f.startswith((".", "build"))]
        found += [os.path.relpath(os.path.join(folder, f), REPO) for f in files if f.endswith(".md")]
    return found


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^```.*?^```", "", text))


def links(page):
    """(whether it is a picture, its text, target) of each link to a file."""
    for bang, text, target in re.findall(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", re.sub(r"(?ms)^```.*?^```", "", read(page))):
        if not re.match(r"[a-z]+:", target):
            yield bool(bang), text, target


def anchors(page):
    """As GitHub makes them of headings."""
    for heading in re.findall(r"(?m)^#+ +(.*)$", re.sub(r"(?ms)^```.*?^```", "", read(page))):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class Links(unittest.TestCase):
    def test_each_leads_somewhere(self):
        self.assertGreater(len(pages()), 20)
        for page in pages():
            for _, _, target in links(page):
                path, _, anchor = target.partition("#")
                file = os.path.normpath(os.path.join(os.path.dirname(page), urllib.parse.unquote(path))) if path else page
                self.assertTrue(os.path.exists(os.path.join(REPO, file)), f"{page}: {target}")
                if anchor and file.endswith(".md"):
                    self.assertIn(anchor, list(anchors(file)), f"{page}: {target}")

    def test_each_document_is_in_the_index(self):
        named = {target for _, _, target in links("docs/README.md")}
        for name in os.listdir(os.path.join(REPO, "docs")):
            if name.endswith(".md") and name != "README.md":
                self.assertIn(name, named)


class Pictures(unittest.TestCase):
    def pictures(self):
        return sorted(name for name in os.listdir(os.path.join(REPO, "docs")) if name.endswith(".svg"))

    def test_each_is_shown_with_words_for_those_who_do_not_see_it(self):
        shown = {}
        for page in pages():
            for picture, text, target in links(page):
                if picture:
                    shown[os.path.basename(target)] = text
        self.assertEqual(sorted(shown), self.pictures())
        self.assertEqual([name for name, text in shown.items() if len(text) < 40], [])

    def test_each_has_a_panel_a_title_and_colours_for_dark_pages(self):
        for name in self.pictures():
            root = xml.etree.ElementTree.fromstring(read("docs/" + name))
            self.assertTrue(root.find(SVG + "title").text, name)
            self.assertEqual(root.get("viewBox"), f"0 0 {root.get('width')} {root.get('height')}", name)
            light, dark = root.find(SVG + "style").text.split("@media (prefers-color-scheme: dark)")
            classes = {word for element in root.iter() for word in (element.get("class") or "").split()}
            for word in classes - {"mono", "bold"}:
                self.assertIn(f".{word} {{", light, name)
                self.assertIn(f".{word} {{", dark, name)
            self.assertEqual([e.tag for e in root.iter(SVG + "text") if e.get("fill")], [], name)
            panel = root.find(SVG + "rect")
            self.assertEqual(panel.get("class"), "panel", name)

    def test_texts_stay_inside(self):
        """By a width of 7 pixels for a character, more than common fonts take on average."""
        for name in self.pictures():
            root = xml.etree.ElementTree.fromstring(read("docs/" + name))
            for element in root.iter(SVG + "text"):
                words = "".join(element.itertext())
                width = 7 * len(words) * float(element.get("font-size") or root.get("font-size")) / 13
                left = float(element.get("x")) - width * {"middle": 0.5, "end": 1}.get(element.get("text-anchor"), 0)
                self.assertTrue(0 < left and left + width < float(root.get("width")), f"{name}: {words}")


class Files(unittest.TestCase):
    def test_no_page_is_ignored_by_git(self):
        if not os.path.isdir(os.path.join(REPO, ".git")) and not os.path.isfile(os.path.join(REPO, ".git")):
            self.skipTest("no checkout")
        done = subprocess.run(["git", "check-ignore", *pages()], cwd=REPO, capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
