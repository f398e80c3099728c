#!/usr/bin/env python3
"""headers_test.py: the public headers, as C11 and as C++17.

usage: headers_test.py INCLUDE LIBANYVERBS [CC]

Each header of INCLUDE compiles alone and twice, without a warning. A program in C++ that names every call links with
LIBANYVERBS. docs/linux-headers.md is true of both.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[2]
STRICT = ["-Wall", "-Wextra", "-Werror"]
# ISO C++ has neither the flexible array of ib_fmr_pool.h nor structures inside an anonymous union.
LANGUAGES = {"C11": ("one.c", ["-std=c11", "-Wpedantic"]), "C++17": ("one.cc", ["-std=c++17"])}


def declarations(text):
    return re.sub(r"(?m)^#.*$", "", re.sub(r"/\*.*?\*/", " ", text, flags=re.S))


class Headers:
    def __init__(self, include, library, cc):
        self.include, self.library = pathlib.Path(include), library
        self.compilers = {"C11": cc, "C++17": "c++"}
        self.names = sorted(str(p.relative_to(include)) for folder in ("rdma", "anyverbs") for p in self.include.glob(f"{folder}/*.h"))
        self.code = {n.rpartition("/")[2]: declarations((self.include / n).read_text()) for n in self.names}
        self.exported = {h: set(re.findall(r"\bAV_EXPORT\b[^;(]*?\b(\w+)\(", code)) for h, code in self.code.items()}
        self.inline = {h: set(re.findall(r"^static inline\b[^;({]*?\b(\w+)\(", code, re.M)) for h, code in self.code.items()}
        self.mistakes = []

    def compile(self, what, language, text, *flags):
        with tempfile.TemporaryDirectory() as folder:
            name, standard = LANGUAGES[language]
            source = pathlib.Path(folder, name)
            source.write_text(text)
            command = [self.compilers[language], *standard, *STRICT, f"-I{self.include}", str(source), "-o", f"{folder}/out", *flags]
            result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            self.mistakes.append(f"{what}, {language}: {result.stderr.strip()}")

    def stand_alone(self):
        for name in self.names:
            for language in LANGUAGES:
                self.compile(name, language, f"#include <{name}>\n#include <{name}>\n", "-fsyntax-only")

    def link(self):
        """All calls, in one program; a library with sanitizers lacks theirs."""
        calls = sorted(set().union(*self.exported.values()))
        text = "".join(f"#include <{n}>\n" for n in self.names)
        text += "const void *volatile calls[] = {\n" + "".join(f"\t(const void *)&{c},\n" for c in calls)
        text += "};\nint main(void)\n{\n\treturn !calls[0];\n}\n"
        for language in LANGUAGES:
            self.compile("all calls", language, text, "-Wno-pedantic", str(self.library), "-Wl,--unresolved-symbols=ignore-in-shared-libs")
        return len(calls)

    def table(self, page):
        """Of each call in the page: it is where its row says."""
        names, header = set(), None
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if line.startswith("## "):
                sections = re.findall(r"\w+\.h", line)
                header = sections[0] if len(sections) == 1 else None
            row = re.fullmatch(r"\| ((?:`\w+` ?)+) \| (exported|inline|absent)\b(?:, in `(\w+\.h)`)?.* \|", line)
            if not row:
                continue
            where = row[3] or header
            for call in re.findall(r"\w+", row[1]):
                names.add(call)
                if row[2] == "absent":
                    right = not any(re.search(rf"\b{call}\b", code) for code in self.code.values())
                else:
                    right = call in (self.exported if row[2] == "exported" else self.inline).get(where, ())
                if not right:
                    self.mistakes.append(f"{page.name}:{number}: {call} is not {row[2]}" + (f" in {where}" if row[2] != "absent" else ""))
        return len(names)


def main():
    headers = Headers(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "cc")
    headers.stand_alone()
    linked = headers.link()
    listed = headers.table(REPO / "docs/linux-headers.md")
    print("\n".join([*headers.mistakes, f"{len(headers.names)} headers, {linked} calls linked, {listed} calls of the page, "
                                        f"{len(headers.mistakes)} mistakes"]))
    return bool(headers.mistakes) or len(headers.names) < 18 or linked < 150 or listed < 150


if __name__ == "__main__":
    sys.exit(main())
