"""`serve_counting.py BYTES FILES`: serves a policy that only counts, with so much more memory and so many descriptors.

Prints the address and ends when standard input closes.
"""

import resource
import sys
from pathlib import Path

from tests.serving.cases import Counting

from factored_scaling.serving.server import PolicyServer

with PolicyServer(Counting(), port=0) as server:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[1]), resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
    print(server.address, flush=True)
    sys.stdin.read()
