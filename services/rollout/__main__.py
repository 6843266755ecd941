"""`python -m services.rollout --run DIR`: the gateway. Cells are `python -m services.rollout.cell`."""

from gyre.service import main
from services.rollout.gateway.app import run

if __name__ == "__main__":
    main("rollout", run)
