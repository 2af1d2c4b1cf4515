"""A canary agent for tests: does what the request's `mode` says, in place of the real canary.

It travels as a zip application like the real one, and frames its answer with the real
`envlock.canary.frame`.
"""

import io
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PARTS = ("__init__.py", "errors.py", "digest.py", "canary/__init__.py", "canary/frame.py")

_MAIN = r"""
import json, os, sys, time
from envlock.canary import frame
request = json.load(sys.stdin)
mode, nonce = request["mode"], request["nonce"]
out = sys.stdout.buffer
answer = {"schema": "envlock.test/1", "argv": sys.argv[1:], "env": dict(os.environ), "request": request}
framed = frame.encode(nonce, json.dumps(answer).encode())
def put(data):
    out.write(data); out.flush()
if mode == "answer":
    put(framed)
elif mode == "noise":
    put(b"\xff\x00\x80 a library says hello\n"); put(framed); put(b"and goodbye")
elif mode == "binary":
    put(frame.encode(nonce, json.dumps({"bytes": list(range(256)) * request["times"]}).encode()))
elif mode == "nothing":
    print("a result, but not framed")
elif mode == "status":
    sys.stderr.write("could not import the library\n"); sys.exit(request["status"])
elif mode == "signal":
    import ctypes
    ctypes.string_at(0)  # a real fault: as process 1 it would not see a signal that it sends itself
elif mode == "sleep":
    sys.stderr.write("still loading\n"); sys.stderr.flush(); time.sleep(600)
elif mode == "answer-and-sleep":
    put(framed); time.sleep(600)
elif mode == "close-and-sleep":
    put(framed); os.close(1); os.close(2); time.sleep(600)
elif mode == "memory":
    held = bytearray(request["bytes"]); held[::4096] = b"x" * len(held[::4096]); put(framed)
elif mode == "flood":
    for _ in range(request["mebibytes"]):
        out.write(b"\xf0" * (1 << 20))
    out.flush()
elif mode == "flood-and-answer":
    for _ in range(request["mebibytes"]):
        out.write(b"y" * (1 << 20))
    put(b"\n"); put(framed)
elif mode == "other-nonce":
    put(frame.encode("0" * 32, b"{}"))
elif mode == "two-frames":
    put(framed); put(framed)
elif mode == "wrong-hash":
    put(framed.replace(b'"schema"', b'"SCHEMA"'))
elif mode == "cut-off":
    put(framed[:-40])
elif mode == "not-json":
    put(frame.encode(nonce, b"\xff not json"))
elif mode == "not-object":
    put(frame.encode(nonce, b"[1]"))
elif mode == "look":
    found = {}
    for path in ("/x", "/opt/venv/x", "/tmp/x", "/envlock-cache/x", "/dev/shm/x"):
        try:
            open(path, "w").close(); found[path] = "written"
        except OSError as error:
            found[path] = error.strerror
    for place in ("/tmp", "/envlock-cache"):
        with open(place + "/run", "wb") as stream:
            stream.write(open(sys.executable, "rb").read())
        os.chmod(place + "/run", 0o755)
        try:
            home = {"PYTHONHOME": "/opt/venv"}
            found["run " + place] = os.spawnve(os.P_WAIT, place + "/run", ["run", "-c", ""], home)
        except OSError as error:
            found["run " + place] = error.strerror
    import resource, socket
    found["cpus"] = sorted(os.sched_getaffinity(0))
    found["core"] = resource.getrlimit(resource.RLIMIT_CORE)
    try:
        socket.create_connection(("192.0.2.1", 80), 2)
    except OSError as error:
        found["connect"] = error.strerror
    put(frame.encode(nonce, json.dumps(found).encode()))
"""


def packed() -> bytes:
    """Return the zip application."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for part in _PARTS:
            archive.writestr(f"envlock/{part}", (ROOT / "envlock" / part).read_bytes())
        archive.writestr("__main__.py", _MAIN)
    return buffer.getvalue()
