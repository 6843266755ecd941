"""python -m services.trainer --run DIR --cell i"""

from gyre.service import Context, main


async def run(context: Context) -> None:
    """The trainer of one cell."""
    from services.trainer.app import run as run_cell

    await run_cell(context)


if __name__ == "__main__":
    main("trainer", run, with_cell=True)
