"""`python -m services.rollout --run DIR [--gateway N]`: a gateway. Cells are `python -m services.rollout.cell`."""

from gyre.service import main
from services.rollout.gateway.app import options, run

if __name__ == "__main__":
    main("rollout", run, options=options)
