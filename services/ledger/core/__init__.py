"""What is stored (tables, rows, fields). Pure: no bus, no network, no clock."""
