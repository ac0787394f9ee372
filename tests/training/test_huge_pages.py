"""The second start: same process, same arguments, once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = """
import os, sys
from training.huge_pages import use_huge_pages
print(os.getpid(), flush=True)
use_huge_pages()
print(os.environ["GLIBC_TUNABLES"], sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages are asked of Linux only")
@pytest.mark.parametrize(("given", "starts"), [(None, 2), ("glibc.malloc.check=0", 1)])
def test_the_program_starts_again_once_unless_it_is_set(given, starts):
    environment = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    environment |= {"GLIBC_TUNABLES": given} if given else {}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "a b", "--x=1"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    *processes, last = done.stdout.splitlines()
    assert len(processes) == starts and len(set(processes)) == 1, done
    assert last == f"{given or 'glibc.malloc.hugetlb=1'} ['a b', '--x=1']"
