"""Commands in processes of their own that need not import everything again: forked from one that has.

Run as a script: reads a JSON list of commands a line, begins them at once, and answers with the numbers of their
processes and, when all have ended, with their exit codes.
"""

import json
import os
import sys


def serve():
    import jax  # noqa: F401

    import prudent.__main__ as entry
    from prudent import runs  # noqa: F401
    from prudent.report import report_html  # noqa: F401

    print("ready", flush=True)
    for line in sys.stdin:
        children = [begin(entry, begun) for begun in json.loads(line)]
        print(json.dumps(children), flush=True)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)


def begin(entry, begun):
    child = os.fork()
    if child:
        return child
    os.setsid()
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, begun["out"], None), (2, begun["err"], None)):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC if flags is None else flags)
        os.dup2(handle, number)
    sys.argv = ["prudent", *begun["arguments"]]
    try:
        entry.main()
    except SystemExit as ended:
        sys.stdout.flush()
        os._exit(ended.code if isinstance(ended.code, int) else 0)
    os._exit(0)


if __name__ == "__main__":
    serve()
