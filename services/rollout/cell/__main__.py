"""`python -m services.rollout.cell --run DIR --cell i`: the rollout process of cell i."""

from gyre.service import main
from services.rollout.cell.app import run

if __name__ == "__main__":
    main("rollout.cell", run, with_cell=True)
