"""python -m services.scheduler --run DIR"""

from gyre.service import main
from services.scheduler.app import run

if __name__ == "__main__":
    main("scheduler", run)
