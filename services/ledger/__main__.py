"""python -m services.ledger --run DIR [--offline | --print QUESTION [ID] | --export DIR]"""

from gyre.service import main
from services.ledger.service import options, serve

if __name__ == "__main__":
    main("ledger", serve, options=options)
