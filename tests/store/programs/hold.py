"""Lease a run for a second and then do nothing, until killed."""

from __future__ import annotations

import sys
import time

from factored_scaling.store import Store


def main(address: str, study: int) -> None:
    with Store.open(address) as store:
        run = store.lease(study, "doomed", 1.0)
        assert run is not None
        print(run.id, flush=True)
        time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
