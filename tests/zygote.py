"""Commands in processes of their own that need not import everything again: forked from one that has.

Run as a script: reads a JSON list of arguments a line, and answers with the number of the process it has begun.
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
        begun = json.loads(line)
        child = os.fork()
        if child == 0:
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
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
