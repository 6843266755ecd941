"""Generated from proto/ by tools/gen_protos.py; never edited by hand."""
