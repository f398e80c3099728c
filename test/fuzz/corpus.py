#!/usr/bin/env python3
"""corpus: the inputs that fuzzing begins with, one text file for each target: a line per input, its name and its bytes in base64.

usage: test/fuzz/corpus.py add TARGET FILE...       adds each file, named as it is; one of the same name is replaced
       test/fuzz/corpus.py unpack TARGET FOLDER     writes the inputs as files, for a fuzzer run by hand or its -merge
       test/fuzz/corpus.py pack TARGET FOLDER       makes the files of the folder the whole corpus
       test/fuzz/corpus.py list                     targets, inputs and bytes
TARGET is what stands before _fuzz.c; its corpus is test/fuzz/TARGET.corpus.
"""
import base64
import glob
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def path_of(target):
    return os.path.join(HERE, target + ".corpus")


def read(path):
    """The inputs by their names; none if there is no such file."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="ascii") as f:
        words = [line.rstrip("\n").split(" ") for line in f]
    return {name: base64.b64decode(content, validate=True) for name, content in words}


def write(path, inputs):
    with open(path, "w", encoding="ascii") as f:
        for name in sorted(inputs):
            f.write(f"{name} {base64.b64encode(inputs[name]).decode()}\n")


def unpack(path, folder):
    os.makedirs(folder, exist_ok=True)
    for name, content in read(path).items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(content)


def files(paths):
    inputs = {}
    for path in paths:
        with open(path, "rb") as f:
            inputs[os.path.basename(path).replace(" ", "_")] = f.read()
    return inputs


def main():
    words = sys.argv[1:]
    if len(words) >= 3 and words[0] == "add":
        write(path_of(words[1]), {**read(path_of(words[1])), **files(words[2:])})
    elif len(words) == 3 and words[0] == "pack":
        write(path_of(words[1]), files(glob.glob(os.path.join(glob.escape(words[2]), "*"))))
    elif len(words) == 3 and words[0] == "unpack":
        unpack(path_of(words[1]), words[2])
    elif words == ["list"]:
        for path in sorted(glob.glob(os.path.join(HERE, "*.corpus"))):
            inputs = read(path)
            print(os.path.basename(path)[:-7], len(inputs), "inputs", sum(map(len, inputs.values())), "bytes")
    else:
        print(__doc__.strip())
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
