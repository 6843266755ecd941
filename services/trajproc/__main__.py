"""python -m services.trajproc --run DIR [--print tree --name SAMPLE]"""

from gyre.service import main
from services.trajproc.app import run
from services.trajproc.view import options

if __name__ == "__main__":
    main("trajproc", run, options=options)
