"""python -m services.ledger --run DIR [--offline | --explore HOST:PORT | --print QUESTION [--name NAME …] | --export DIR | …]; --help has all."""

from gyre.service import main
from services.ledger.service import options, serve

if __name__ == "__main__":
    main("ledger", serve, options=options)
