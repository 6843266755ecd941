"""`gyre config check CONFIG` and `gyre config show [CONFIG]`."""

from pathlib import Path

import click
import msgspec

from gyre.cli.options import Group, config_arguments, json_option, load_config, print_json
from gyre.config import Config, field_docs, fingerprint
from gyre.config.sections import Section


@click.group(cls=Group)
def config() -> None:
    """Check and show configurations."""


@config.command()
@config_arguments
@json_option
def check(config_file: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Say whether CONFIG can be used; exit code 2 with the reason when it cannot."""
    loaded = load_config(config_file, overrides)
    if as_json:
        print_json({"ok": True, "fingerprint": fingerprint(loaded)})
    else:
        click.echo(f"{config_file}: fine, fingerprint {fingerprint(loaded)}")


@config.command()
@click.argument("config_file", metavar="[CONFIG]", type=click.Path(path_type=Path), required=False)
@click.option("--set", "overrides", multiple=True, metavar="SECTION.FIELD=VALUE", help="Override one setting.")
@json_option
def show(config_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Every setting of CONFIG (of the defaults without one) with its meaning."""
    loaded = load_config(config_file, overrides) if config_file else Config()
    values = msgspec.to_builtins(loaded)
    if as_json:
        print_json(values)
        return
    for section in msgspec.structs.fields(Config):
        value = getattr(loaded, section.name)
        for item in value if isinstance(value, list) else [value]:
            _show(section.name, item)


def _show(name: str, section: Section) -> None:
    """A section, then those inside it, as TOML wants them."""
    click.echo(f"\n[{name}]")
    docs = field_docs(type(section))
    inner = []
    for field in msgspec.structs.fields(type(section)):
        value = getattr(section, field.name)
        if isinstance(value, Section):
            inner.append((f"{name}.{field.name}", value))
            continue
        click.echo(f"# {docs[field.name]}")
        click.echo(f"{field.name} = {msgspec.json.encode(value).decode()}")
    for inner_name, value in inner:
        _show(inner_name, value)
