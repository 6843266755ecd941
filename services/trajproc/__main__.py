"""python -m services.trajproc --run DIR"""

from gyre.service import main
from services.trajproc.app import run

if __name__ == "__main__":
    main("trajproc", run)
