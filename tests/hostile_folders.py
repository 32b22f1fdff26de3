"""Folders of runs as someone would make them who wishes to do harm, each from a sound one by one change."""

import json
import os
import struct

from prudent.files import MANIFEST
from prudent.runs.folder import ARRAYS, CHECKPOINT, DETERMINISTIC, POLICY, PROOF, REPORT, SOLUTION, UNFINISHED, WEIGHTS

from .run_folders import adopt

RUN = (CHECKPOINT, POLICY, DETERMINISTIC, SOLUTION, ARRAYS, WEIGHTS, REPORT, PROOF)
TENSORS = (CHECKPOINT, ARRAYS, PROOF)
HUGE = 6 * 2**30

# What each command reads or holds against the manifest; the lock only who changes the folder takes.
READS = {
    "compare": {MANIFEST, *RUN},
    "verify": {MANIFEST, *RUN},
    "report": {MANIFEST, ".lock", *RUN} - {REPORT},
    "prove": {MANIFEST, ".lock", *RUN} - {PROOF},
    "frontier": {MANIFEST, ".lock", *RUN} - {PROOF},
    "worth": {MANIFEST, ".lock", *RUN} - {PROOF},
    "continue": {MANIFEST, ".lock", CHECKPOINT},
}


# What each parses: what else is in a file that was signed is nobody's business.
PARSES = {
    "compare": {CHECKPOINT, SOLUTION, ARRAYS},
    "verify": {CHECKPOINT, PROOF},
    "report": {SOLUTION, ARRAYS},
    "prove": {CHECKPOINT, SOLUTION, ARRAYS},
    "frontier": {CHECKPOINT, SOLUTION, ARRAYS},
    "worth": {CHECKPOINT, SOLUTION, ARRAYS},
    "continue": {CHECKPOINT, UNFINISHED},
}


def replaced(path, make):
    if os.path.lexists(path):
        path.unlink()
    make(path)


def in_the_way(outside):
    """What can stand in the place of any file."""
    yield "a link to a file elsewhere", lambda path: path.symlink_to(outside / "kept.txt")
    yield "a link to nothing", lambda path: path.symlink_to(outside / "nothing")
    yield "a link to itself", lambda path: path.symlink_to(path.name)
    yield "a link to a device without end", lambda path: path.symlink_to("/dev/zero")
    yield "a pipe", os.mkfifo
    yield "a folder", lambda path: path.mkdir()


def damages():
    """What can have happened to the bytes of a file, which then no longer fits the manifest."""
    yield "nothing in it", lambda data: b""
    yield "half of it", lambda data: data[: len(data) // 2]
    yield "a bit turned", lambda data: data[:-1] + bytes([data[-1] ^ 1])
    yield "more after its end", lambda data: data + b"\0" * 100
    yield "as many zeros", lambda data: bytes(len(data))


def tensors(header, body=b""):
    text = json.dumps(header).encode() if isinstance(header, dict) else header
    return struct.pack("<Q", len(text)) + text + body


def forged_tensors(data):
    """Files of arrays by someone who signs them."""
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    arrays = [name for name in header if name != "__metadata__"]
    key, name = next(iter(header["__metadata__"])), max(arrays, key=lambda each: header[each]["data_offsets"])
    entry = header[name]
    yield "no header", b""
    yield "a header without end", struct.pack("<Q", 2**63) + data[8:]
    yield "a header as long as a disk", struct.pack("<Q", 2**40) + data[8:]
    yield "a header that is no JSON", tensors(b"{" * 1000)
    yield "a header nested deeply", tensors(b"[" * 100_000)
    yield "no record", tensors({**header, "__metadata__": {}}, body)
    yield "a record that is no JSON", tensors({**header, "__metadata__": {key: "{"}}, body)
    yield "a record nested deeply", tensors({**header, "__metadata__": {key: "[" * 100_000}}, body)
    yield "a record that is a list", tensors({**header, "__metadata__": {key: "[]"}}, body)
    yield (
        "another version",
        tensors({**header, "__metadata__": {key: '{"kind": "prudent checkpoint, version 99"}'}}, body),
    )
    yield "an array larger than the file", tensors({**header, name: {**entry, "shape": [2**40]}}, body)
    yield "an array of a negative size", tensors({**header, name: {**entry, "shape": [-8, -1]}}, body)
    yield "an array of many axes", tensors({**header, name: {**entry, "shape": [1] * 10_000}}, body)
    yield "an array of a type unknown", tensors({**header, name: {**entry, "dtype": "F8_E4M3"}}, body)
    yield "an array before the file", tensors({**header, name: {**entry, "data_offsets": [-8, 0]}}, body)
    yield "two arrays in one place", tensors({**header, name: header[arrays[0]]}, body)
    yield "no arrays", tensors({"__metadata__": header["__metadata__"]})
    many = {f"a{k}": {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]} for k in range(50_000)}
    yield "very many arrays", tensors({**many, "__metadata__": header["__metadata__"]})


def declared_and_huge(name, data):
    """A sparse array of six gigabytes, of which header and manifest know; its digest would have to be found first."""
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    header["more"] = {"dtype": "U8", "shape": [HUGE], "data_offsets": [len(body), len(body) + HUGE]}

    def change(folder):
        content = tensors(header, body)
        (folder / name).write_bytes(content)
        os.truncate(folder / name, len(content) + HUGE)
        said = json.loads((folder / MANIFEST).read_text())
        said["files"][name]["bytes"] = len(content) + HUGE
        (folder / MANIFEST).write_text(json.dumps(said))

    return change


def forged_records(data):
    """Records by someone who signs them."""
    said = json.loads(data)
    for name, value in {
        "states": ["x" * 5_000_000, "b", "c", "d"],
        "actions": ["\ud800", "b", "c"],
        "status": "\ud800",
        "title": "x" * 5_000_000,
        "message": ["[/nope]"] * 10,
        "grid": [-2, -2],
        "draws": 10**15,
        "risk": "[red]",
        "iterations": -1,
        "seconds": -1.0,
        "rivals": [{}] * 1000,
        "drivers": 7,
        "exact": "maybe",
        "certificate": [],
        "versions": {"a" * 20_000: "b"},
        "interval": [1.0, 2.0, 3.0],
        "tail_level": 2.0,
    }.items():
        yield f"{name} of another kind", json.dumps(said | {name: value}).encode()
    yield "no JSON", b"{"
    yield "nested deeply", b"[" * 1_000_000
    yield "a list", b"[]"
    yield "lists without end", b"[" + b"[]," * 5_000_000 + b"[]]"
    yield "nothing known", b"{}"
    yield "not UTF-8", b'{"title": "\xff"}'
    for name in ("risk", "mean", "draws", "status"):
        yield f"{name} left out", json.dumps({key: value for key, value in said.items() if key != name}).encode()


def forged_manifests(data):
    """Manifests that are none, or that name what is not theirs to name."""
    said = json.loads(data)
    files = said["files"]
    entry = files[CHECKPOINT]
    yield "no JSON", b"{"
    yield "nested deeply", b"[" * 60_000
    yield "nested deeply and long", b"[" * 1_000_000
    yield "a list", b"[]"
    yield "nothing", b"{}"
    yield "very long", data + b" " * 10**6
    yield "another version", json.dumps(said | {"kind": "prudent run, version 99"}).encode()
    yield "a token that is a path", json.dumps(said | {"token": "../../outside/kept"}).encode()
    yield "no token", json.dumps(said | {"token": None}).encode()
    yield "a note that is text", json.dumps(said | {"note": {"iterations": "\x1b[2J"}}).encode()
    yield "a process that is no number", json.dumps(said | {"process": "me"}).encode()
    yield "files as a list", json.dumps(said | {"files": list(files)}).encode()
    yield "no files", json.dumps(said | {"files": {}}).encode()
    for name, change in {
        "a negative size": {"bytes": -1},
        "a size that is no number": {"bytes": "1"},
        "a size without end": {"bytes": 10**400},
        "a size that is true": {"bytes": True},
        "no digest": {"sha256": ""},
        "a digest that is no text": {"sha256": 7},
        "another digest": {"sha256": "0" * 64},
        "another size": {"bytes": 1},
    }.items():
        yield name, json.dumps(said | {"files": files | {CHECKPOINT: entry | change}}).encode()
    swapped = files | {CHECKPOINT: files[ARRAYS], ARRAYS: files[CHECKPOINT]}
    yield "digests of one another", json.dumps(said | {"files": swapped}).encode()


def hostile(run, other, outside):
    """Names, what is changed, and functions that change a copy of a sound run."""
    for name in RUN:
        for what, make in in_the_way(outside):
            yield f"{name}: {what}", name, lambda folder, name=name, make=make: replaced(folder / name, make)
        for what, damage in damages():
            content = damage((run / name).read_bytes())
            yield f"{name}: {what}", name, lambda folder, n=name, c=content: (folder / n).write_bytes(c)
        yield f"{name}: six sparse gigabytes", name, lambda folder, n=name: os.truncate(folder / n, HUGE)

        def signed_and_huge(folder, name=name):
            os.truncate(folder / name, HUGE)
            said = json.loads((folder / MANIFEST).read_text())
            said["files"][name]["bytes"] = HUGE
            (folder / MANIFEST).write_text(json.dumps(said))

        yield f"{name}: six sparse gigabytes, signed", name, signed_and_huge
        swap = (other / name).read_bytes()
        if swap != (run / name).read_bytes():
            yield f"{name}: of another run", name, lambda folder, n=name, c=swap: (folder / n).write_bytes(c)
    for what, make in in_the_way(outside):
        yield f"{MANIFEST}: {what}", MANIFEST, lambda folder, make=make: replaced(folder / MANIFEST, make)
        yield f".lock: {what}", ".lock", lambda folder, make=make: replaced(folder / ".lock", make)
    yield f"{MANIFEST}: missing", MANIFEST, lambda folder: (folder / MANIFEST).unlink()
    yield f"{MANIFEST}: six sparse gigabytes", MANIFEST, lambda folder: os.truncate(folder / MANIFEST, HUGE)
    for what, content in forged_manifests((run / MANIFEST).read_bytes()):
        yield f"{MANIFEST}: {what}", MANIFEST, lambda folder, c=content: (folder / MANIFEST).write_bytes(c)

    def signed(name, content):
        assert not (run / name).exists() or content != (run / name).read_bytes(), "nothing is changed"

        def change(folder):
            (folder / name).write_bytes(content)
            adopt(folder)

        return change

    for name in TENSORS:
        yield f"{name}, signed: six gigabytes declared", name, declared_and_huge(name, (run / name).read_bytes())
        for what, content in forged_tensors((run / name).read_bytes()):
            yield f"{name}, signed: {what}", name, signed(name, content)
    for what, content in forged_records((run / SOLUTION).read_bytes()):
        yield f"{SOLUTION}, signed: {what}", SOLUTION, signed(SOLUTION, content)
    yield f"{UNFINISHED}, signed: none", UNFINISHED, signed(UNFINISHED, b"nothing")
